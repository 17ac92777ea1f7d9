// Opens a store, holds a key and listens, loses its server, and comes to its end without closing anything.
import { createLocks } from '../../../../src/index.ts'
import { openRedis } from '../../../../src/stores/redis/index.ts'

const [, , url = '', pid = '', signal = ''] = process.argv
const locks = createLocks(await openRedis(url))
const lease = await locks.acquire('key', { ttl: '10s' })
await locks.acquire('key', { wait: '5s' }).catch((error) => console.log(error.code))
process.kill(Number(pid), signal)
// Long enough for the connections to notice, which is when they would begin to pause.
await lease.extend().catch((error) => console.log(error.code))
