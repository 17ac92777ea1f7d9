// Stands in the queue of one key several times, until somebody ends the process.
import { connect } from '../../src/index.ts'

const [url = '', key = '', count = '', ttlMs = ''] = process.argv.slice(2)
const locks = await connect(url, { ttl: Number(ttlMs), wait: '10m' })
for (let waiter = 0; waiter < Number(count); waiter += 1) locks.acquire(key).catch(() => {})
// It stops itself: from outside it could be stopped in the middle of an SQLite transaction, and then nobody gets the key.
process.on('message', () => {
  process.send?.('frozen')
  process.kill(process.pid, 'SIGSTOP')
})
process.on('disconnect', () => process.exit(1))
