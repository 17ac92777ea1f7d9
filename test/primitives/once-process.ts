// One process that begins a piece of work, reports that, and never comes to its end.
import { connect } from '../../src/index.ts'

const [url = '', key = ''] = process.argv.slice(2)
// Longer than a busy machine keeps the process from a renewal.
const locks = await connect(url, { ttl: '5s' })
const work = () => {
  process.send?.('works')
  return new Promise(() => {})
}
await locks.once(key, { remember: '10m' }, work)
