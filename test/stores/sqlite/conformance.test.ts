import { describe, test } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { conformanceCases } from '../conformance-cases.ts'
import { engines, freshFolder } from './lock-folder.ts'

const folder = freshFolder()

describe.each(engines)('the sqlite store keeps the contract with %s', (engine) => {
  const path = `${folder}/${engine === 'node:sqlite' ? 'runtime' : 'package'}.db`
  const cases = conformanceCases({
    open: () => sqliteStore({ path, engine }),
    sharesClock: true,
    grants: true,
  })
  for (const { name, run } of cases) test(name, run)
})
