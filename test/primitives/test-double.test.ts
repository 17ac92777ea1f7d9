import { expect, test } from 'vitest'
import { createLocks, type Locks, type ReadWriteLock, type Semaphore } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'

// The compiler checks that each of these is a plain object, without private parts of a class.
test('a plain object may stand in for the locks of a program under test', async () => {
  const real = createLocks(memoryStore())
  const taken: string[] = []
  const readWrite: ReadWriteLock = {
    key: 'k',
    read: <T>(...rest: unknown[]) => real.readWrite('k').read(rest.at(-1) as () => T),
    write: <T>(...rest: unknown[]) => real.readWrite('k').write(rest.at(-1) as () => T),
    tryRead: async () => ({ ran: false }),
    tryWrite: async () => ({ ran: false }),
    acquireRead: (options) => real.readWrite('k').acquireRead(options),
    acquireWrite: (options) => real.readWrite('k').acquireWrite(options),
    tryAcquireRead: async () => null,
    tryAcquireWrite: async () => null,
  }
  const semaphore: Semaphore = {
    key: 'k',
    permits: 5,
    acquire: (options) => real.semaphore('k', 5).acquire(options),
    tryAcquire: async () => null,
    withPermits: <T>(...rest: unknown[]) => real.semaphore('k', 5).withPermits(rest.at(-1) as () => T),
    tryWithPermits: async () => ({ ran: false }),
  }
  const double: Locks = {
    withLock: <T>(key: string, ...rest: unknown[]) => {
      taken.push(key)
      return real.withLock(key, rest.at(-1) as () => T)
    },
    tryWithLock: async () => ({ ran: false }),
    withLocks: (keys: readonly string[], ...rest: unknown[]) =>
      real.withLocks(keys, rest.at(-1) as () => never),
    tryWithLocks: async () => ({ ran: false }),
    acquire: (key, options) => real.acquire(key, options),
    tryAcquire: async () => null,
    acquireAll: (keys, options) => real.acquireAll(keys, options),
    tryAcquireAll: async () => null,
    readWrite: (key) => real.readWrite(key),
    semaphore: (key, permits) => real.semaphore(key, permits),
    once: async () => ({ ran: false }),
    election: (key) => real.election(key),
    group: (key) => real.group(key),
    adopt: (json, options) => real.adopt(json, options),
    peek: async () => null,
    check: async () => {},
    waitUntilFree: async () => {},
    inspect: (options) => real.inspect(options),
    caveats: async () => [],
    evict: async () => [],
    evictAll: async () => [],
    on: (event, listener) => real.on(event, listener),
    close: () => real.close(),
    [Symbol.asyncDispose]: () => real.close(),
  }
  expect(await programUnderTest(double)).toBe('paid')
  expect(taken).toEqual(['invoice:42'])
  expect([await readWrite.tryWrite(() => 1), await semaphore.tryAcquire()]).toEqual([{ ran: false }, null])
  // The program runs on the real locks as well.
  expect(await programUnderTest(real)).toBe('paid')
  await double.close()
})

function programUnderTest(locks: Locks): Promise<string> {
  return locks.withLock('invoice:42', { ttl: '10s' }, () => 'paid')
}
