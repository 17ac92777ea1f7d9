import { describe, test } from 'vitest'
import { memoryStore } from '../../../src/stores/memory/index.ts'
import { storeConformance } from '../../../src/testing/index.ts'

const store = memoryStore()

describe('the memory store keeps the contract', () => {
  for (const { name, run } of storeConformance({ open: () => store, grants: true })) test(name, run)
})
