import { describe, test } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.ts'
import { storeConformance } from '../../../src/testing/index.ts'
import { freshFolder } from './lock-folder.ts'

const path = `${freshFolder()}/locks.db`

describe('the sqlite store keeps the contract', () => {
  for (const { name, run } of storeConformance({ open: () => sqliteStore(path), sharesClock: true }))
    test(name, run)
})
