// Holds a key over Sentinels and listens, loses the master and one Sentinel, and comes to its end without closing anything.
import { connect } from '../../../../../src/index.ts'

const [, , url = '', ...pids] = process.argv
const locks = await connect(url)
const lease = await locks.acquire('key', { ttl: '10s' })
await locks.acquire('key', { wait: '5s' }).catch((error) => console.log(error.code))
for (const pid of pids) process.kill(Number(pid), 'SIGKILL')
// Long enough for the connections to notice, which is when they would begin to pause.
await lease.extend().catch((error) => console.log(error.code))
console.log('the end')
