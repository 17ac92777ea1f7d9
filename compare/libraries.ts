import type { Kind, Library, Opener } from './library.ts'

/** This library first, then the others by their use on npm. Each is loaded when it is opened, so that a process loads one only. */
export const libraries: readonly Library[] = [
  ...on(['redis', 'redlock', 'etcd', 'memory'], {
    name: 'holdfast',
    settings: 'its defaults',
    load: () => import('./libraries/holdfast.ts'),
  }),
  // On one server, as its README shows first, and on several.
  ...on(['redis', 'redlock'], {
    name: 'redlock',
    settings: 'as many retries as fit into the wait, 200 ms apart as by default',
    load: () => import('./libraries/redlock.ts'),
  }),
  ...on(['redis', 'redlock'], {
    name: 'redis-semaphore',
    settings: 'its defaults, with `onLockLost` set and the wait as `acquireTimeout`',
    load: () => import('./libraries/redis-semaphore.ts'),
  }),
  ...on(['redis', 'memory'], {
    name: '@verrou/core',
    settings: 'its defaults, with the wait as `timeout`',
    load: () => import('./libraries/verrou.ts'),
  }),
  ...on(['redis'], {
    name: 'simple-redis-mutex',
    settings: 'its defaults, with the wait as `failAfter`',
    load: () => import('./libraries/simple-redis-mutex.ts'),
  }),
  // Its lock does not wait.
  ...on(['etcd'], {
    name: 'etcd3',
    settings: 'its defaults',
    load: () => import('./libraries/etcd3.ts'),
  }),
  ...on(['memory'], {
    name: 'async-lock',
    settings: 'the wait as `timeout`',
    load: async () => (await import('./libraries/in-process.ts')).asyncLock,
  }),
  ...on(['memory'], {
    name: 'async-mutex',
    settings: 'a mutex for each key, `withTimeout` for the wait',
    load: async () => (await import('./libraries/in-process.ts')).asyncMutex,
  }),
]

function on(
  kinds: readonly Kind[],
  { name, settings, load }: Pick<Library, 'name' | 'settings'> & { readonly load: () => Promise<Opener> },
): readonly Library[] {
  return kinds.map((kind) => ({
    name,
    kind,
    settings,
    open: async (place) => (await load()).open(place, kind),
  }))
}
