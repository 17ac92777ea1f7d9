import AsyncLock from 'async-lock'
import { Mutex, Semaphore, withTimeout } from 'async-mutex'
import type { Held, Opener } from '../library.ts'

export const asyncMutex: Opener = {
  async open() {
    const mutexes = new Map<string, Mutex>()
    const semaphores = new Map<string, Semaphore>()
    return {
      acquire(key, waitMs) {
        const mutex = entryOf(mutexes, key, () => new Mutex())
        return inTime(() => withTimeout(mutex, waitMs).acquire())
      },
      acquireUnits({ key, limit, count, waitMs }) {
        const semaphore = entryOf(semaphores, key, () => new Semaphore(limit))
        return inTime(async () => (await withTimeout(semaphore, waitMs).acquire(count))[1])
      },
      close: async () => {},
    }
  },
}

export const asyncLock: Opener = {
  async open() {
    const locks = new AsyncLock()
    const held = (keys: string | string[], waitMs?: number): Promise<Held | null> =>
      new Promise((resolve) => {
        let release = (): void => {}
        const released = new Promise<void>((done) => {
          release = done
        })
        const work = (): Promise<void> => {
          resolve({ lost: undefined, release: async () => release() })
          return released
        }
        locks.acquire(keys, work, waitMs === undefined ? {} : { timeout: waitMs }).catch(() => resolve(null))
      })
    return {
      acquire: held,
      async acquireAll(keys) {
        const all = await held([...keys])
        if (all === null) throw new Error('The keys were not acquired.')
        return all
      },
      close: async () => {},
    }
  },
}

async function inTime(acquire: () => Promise<() => void>): Promise<Held | null> {
  try {
    const release = await acquire()
    return { lost: undefined, release: async () => release() }
  } catch {
    return null
  }
}

function entryOf<Value>(values: Map<string, Value>, key: string, make: () => Value): Value {
  const value = values.get(key) ?? make()
  values.set(key, value)
  return value
}
