// Takes a key, lets another call wait for it, gives it back, and closes nothing: the process has to end by itself.
import { connect } from '../../../../src/index.ts'

const locks = await connected()
const lease = await locks.acquire('key', { ttl: '20s' })
const next = locks.acquire('key', { ttl: '20s' })
await lease.extend()
await lease.release()
await (await next).release()
console.log('done')

/** On a busy machine this process may be too slow for the limit of `connect`. */
async function connected() {
  for (let tries = 1; ; tries += 1) {
    try {
      return await connect(process.argv[2] ?? '')
    } catch (error) {
      if (tries === 5 || error.code !== 'store-unavailable') throw error
    }
  }
}
