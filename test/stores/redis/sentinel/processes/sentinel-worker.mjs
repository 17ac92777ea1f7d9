// Holds a key and waits for another one behind a store that fails over, and says what becomes of both.
import { connect } from '../../../../../src/index.ts'

const [, , url = '', held = '', wanted = ''] = process.argv
const locks = await connect(url)
const lease = await locks.acquire(held, { ttl: '60s' })
lease.signal.addEventListener('abort', () => console.log(`lost ${lease.signal.reason.reason}`))
console.log(`held ${lease.fence}`)
const next = await locks.acquire(wanted, { ttl: '60s', wait: '60s' })
console.log(`acquired ${next.fence}`)
process.on('SIGTERM', async () => {
  await locks.close()
  process.exit()
})
