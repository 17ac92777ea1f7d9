import { describe, test } from 'vitest'
import { SqliteStore } from '../../../src/stores/sqlite/sqlite-store.ts'
import { groupCases } from './group-cases.ts'
import { engines, freshFolder } from './lock-folder.ts'

const folder = freshFolder()

describe.each(engines)('with %s', (engine) => {
  for (const { name, run } of groupCases({ SqliteStore, engine, folder })) test(name, run)
})
