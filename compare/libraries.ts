import { etcd3 } from './libraries/etcd3.ts'
import { holdfast } from './libraries/holdfast.ts'
import { asyncLock, asyncMutex } from './libraries/in-process.ts'
import { redisSemaphore } from './libraries/redis-semaphore.ts'
import { redlock } from './libraries/redlock.ts'
import { simpleRedisMutex } from './libraries/simple-redis-mutex.ts'
import { verrou } from './libraries/verrou.ts'
import type { Library } from './library.ts'

/** This library first, then the others by their use on npm. */
export const libraries: readonly Library[] = [
  ...holdfast,
  ...redlock,
  ...redisSemaphore,
  ...verrou,
  simpleRedisMutex,
  etcd3,
  asyncLock,
  asyncMutex,
]
