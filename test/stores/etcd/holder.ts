/** Holds `first` and `second` for a short ttl, with a waiter behind `second`, and says when it is told that they are lost. */
import { createLocks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'

const locks = createLocks(etcdStore({ endpoints: process.argv.slice(2) }))
const leases = [await locks.acquire('first', { ttl: '2s' }), await locks.acquire('second', { ttl: '2s' })]
locks.acquire('second', { ttl: '2s', wait: '10m' }).catch(() => {})
for (const { signal } of leases) signal.addEventListener('abort', () => process.stdout.write('lost\n'))
process.stdout.write('waiting\n')
setInterval(() => {}, 1000)
