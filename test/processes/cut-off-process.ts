// One process that holds a key for as long as it can, reports when it gets and loses the key, and tries again.
import { connect } from '../../src/index.ts'

const [url = ''] = process.argv.slice(2)
const locks = await connect(url)
const end = new AbortController()
// All processes of a machine have the same monotonic clock.
const tell = (what: string) => process.send?.({ what, at: Number(process.hrtime.bigint()) / 1e6 })
process.on('message', () => end.abort())
process.on('disconnect', () => process.exit())

while (!end.signal.aborted) {
  try {
    const lease = await locks.acquire('k', { ttl: 2000, wait: Number.POSITIVE_INFINITY, signal: end.signal })
    lease.signal.addEventListener('abort', () => tell('lost'))
    tell('held')
    await new Promise((resolve) => {
      lease.signal.addEventListener('abort', resolve)
      end.signal.addEventListener('abort', resolve)
    })
    await lease.release()
  } catch (error) {
    if (!end.signal.aborted) throw error
  }
}
await locks.close()
tell('ended')
