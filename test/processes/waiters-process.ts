// Queues several times for one key, until a signal ends the process.
import { connect } from '../../src/index.ts'

const [url = '', key = '', count = '', ttlMs = ''] = process.argv.slice(2)
const locks = await connect(url, { ttl: Number(ttlMs), wait: '10m' })
for (let waiter = 0; waiter < Number(count); waiter += 1) locks.acquire(key).catch(() => {})
// The process stops itself. A stop from outside could hit the middle of an SQLite transaction, and then no process gets
// the key.
process.on('message', () => {
  process.send?.('frozen')
  process.kill(process.pid, 'SIGSTOP')
})
process.on('disconnect', () => process.exit(1))
