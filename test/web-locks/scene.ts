import { onTestFinished } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { type LockManager, type LockOptions, webLocks } from '../../src/web-locks/index.ts'

/** Two clients at one store, as two tabs of one origin. */
export function scene(store: Store = memoryStore()): { one: LockManager; other: LockManager; store: Store } {
  const clients = ['one', 'other'].map((label) => createLocks(store, { label }))
  onTestFinished(async () => {
    await Promise.all(clients.map((locks) => locks.close()))
  })
  const [one, other] = clients.map((locks) => webLocks(locks)) as [LockManager, LockManager]
  return { one, other, store }
}

/** A lock that is held until the test says otherwise. */
export async function held(locks: LockManager, name: string, options: LockOptions = {}) {
  let release = (_value: string) => {}
  let fail = (_error: unknown) => {}
  const done = new Promise<string>((resolve, reject) => {
    release = resolve
    fail = reject
  })
  let granted = () => {}
  const isGranted = new Promise<void>((resolve) => {
    granted = resolve
  })
  const result = locks.request(name, options, () => {
    granted()
    return done
  })
  result.catch(() => {})
  await isGranted
  return { result, release, fail }
}
