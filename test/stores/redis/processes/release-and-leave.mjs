// Holds a key, gives it back without waiting for the answer, and exits.
import { Redis } from 'ioredis'
import { createLocks } from '../../../../src/index.ts'
import { redisStore } from '../../../../src/stores/redis/index.ts'

const [, , url = ''] = process.argv
const locks = createLocks(redisStore(new Redis(url, { lazyConnect: true })))
const lease = await locks.acquire('key')
console.log(lease.state)
void lease.release()
// The request is written by then, and the answer is not there yet.
setImmediate(() => process.exit())
