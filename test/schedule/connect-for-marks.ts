import { Redis } from 'ioredis'
import { connect, createLocks, type Locks, type LocksOptions } from '../../src/index.ts'
import { redlockStore } from '../../src/stores/redlock/index.ts'

/** Opens locks whose marks may last for up to 24 days. On redlock that needs the option `maxTtl`. */
export async function connectForMarks(url: string, options: LocksOptions = {}): Promise<Locks> {
  const [, masters] = /^redlock:(.*)/.exec(url) ?? []
  if (masters === undefined) return connect(url, options)
  const clients = masters.split(',').map((one) => new Redis(one))
  const locks = createLocks(redlockStore(clients, { maxTtl: '576h' }), options)
  const close = locks.close.bind(locks)
  return Object.assign(locks, {
    async close() {
      await close()
      for (const client of clients) client.disconnect()
    },
  })
}
