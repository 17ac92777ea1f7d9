// Takes a key, lets another call wait for it, gives it back, and closes nothing: the process has to end by itself.
import { connect } from '../../../../src/index.ts'

const locks = await connect(process.argv[2] ?? '')
const lease = await locks.acquire('key', { ttl: '20s' })
const next = locks.acquire('key', { ttl: '20s' })
await lease.extend()
await lease.release()
await (await next).release()
console.log('done')
