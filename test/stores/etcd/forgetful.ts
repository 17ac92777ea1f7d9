/** Holds a key, lets another wait a moment and give up, and ends without having closed anything. */
import { createLocks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'

const locks = createLocks(etcdStore({ endpoints: [process.argv[2] ?? ''] }))
const lease = await locks.acquire('k')
await locks.acquire('k', { wait: 300 }).catch(() => {})
if (!lease.signal.aborted) process.stdout.write('held\n')
