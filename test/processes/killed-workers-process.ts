// Takes one key again and again, and tells its parent each time, until a signal ends the process.
import { setTimeout as pause } from 'node:timers/promises'
import { connect } from '../../src/index.ts'

const [url = '', key = '', ttlMs = ''] = process.argv.slice(2)
process.on('disconnect', () => process.exit(1))
const locks = await connect(url, { ttl: Number(ttlMs), wait: '10m' })
for (;;) {
  await locks.withLock(key, async () => {
    process.send?.('works')
    await pause(20)
  })
}
