import { createLocks } from '../../src/index.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import type { Adapter, Surroundings } from '../adapter.ts'

export async function openEtcd({ etcdUrl }: Surroundings): Promise<Adapter> {
  const locks = createLocks(etcdStore({ endpoints: [etcdUrl] }))
  return {
    async acquire(key) {
      const lease = await locks.acquire(key, { wait: Number.POSITIVE_INFINITY })
      return () => lease.release()
    },
    close: () => locks.close(),
  }
}
