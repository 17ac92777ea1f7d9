// A process that takes and gives back one key until its input ends: contender-program.ts URL RECORD. It writes every turn
// into a record that all contenders share. To append a line is one step, so the record shows what happened in which order.
import { appendFileSync } from 'node:fs'
import { connect } from '../../src/index.ts'

const [url = '', record = ''] = process.argv.slice(2)
const locks = await connect(url, { ttl: '6s', wait: '2m' })
let ending = false
process.stdin.once('end', () => {
  ending = true
})
process.stdin.resume()

while (!ending) {
  await locks.withLock('key', async ({ fence }) => {
    appendFileSync(record, `enter ${fence} ${process.pid}\n`)
    await new Promise((resolve) => setImmediate(resolve))
    appendFileSync(record, `leave ${fence} ${process.pid}\n`)
  })
  // The record stays short.
  await new Promise((resolve) => setTimeout(resolve, 20))
}
await locks.close()
