// The old holder of a test. It takes the lock, reads the balance, and writes the balance back when it is told to,
// however late that is.
import { once } from 'node:events'
import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { guard } from '../../src/guard/index.ts'
import { createLocks, isHoldfastError } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'

const [redisUrl = '', postgresUrl = '', ttl = ''] = process.argv.slice(2)
const redis = new Redis(redisUrl)
const locks = createLocks(redisStore(redis))
const pool = new Pool({ connectionString: postgresUrl })
process.once('disconnect', () => process.exit(1))

const lease = await locks.acquire('account:1', { ttl: Number(ttl) })
const { rows } = await pool.query('select balance from account where id = 1')
process.send?.({ fence: String(lease.fence) })
await once(process, 'message')

const client = await pool.connect()
await client.query('begin')
// The holder writes first, calls the guard then, and goes on after the refusal. Even so, its write must not count.
await client.query('update account set balance = $1 where id = 1', [rows[0].balance - 10])
const said = await guard(client, { fence: lease }).then(
  () => 'allowed',
  (error: unknown) => (isHoldfastError(error) ? error.code : String(error)),
)
await client.query('commit')
client.release()
process.send?.({ said })

await lease.release()
await locks.close()
await pool.end()
redis.disconnect()
process.removeAllListeners('disconnect')
process.disconnect()
