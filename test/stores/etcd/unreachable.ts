/** Asks for a key in vain, closes, and has nothing more to do. */
import { createLocks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'

const locks = createLocks(etcdStore({ endpoints: process.argv.slice(2) }))
await locks.tryAcquire('k').catch(({ code }: { code: string }) => process.stdout.write(code))
await locks.close()
