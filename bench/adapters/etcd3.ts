import { Etcd3 } from 'etcd3'
import type { Adapter, Surroundings } from '../adapter.ts'

/** The lock of etcd3, which does not wait. */
export async function openEtcd3({ etcdUrl }: Surroundings): Promise<Adapter> {
  const client = new Etcd3({ hosts: etcdUrl })
  return {
    async acquire(key) {
      const lock = client.lock(key).ttl(30)
      await lock.acquire()
      return async () => {
        await lock.release()
      }
    },
    async close() {
      client.close()
    },
  }
}

/** Its elections, which do. */
export async function openEtcd3Election({ etcdUrl }: Surroundings): Promise<Adapter> {
  const client = new Etcd3({ hosts: etcdUrl })
  return {
    async acquire(key) {
      const campaign = client.election(key, 30).campaign('bench')
      await campaign.wait()
      return async () => {
        await campaign.resign()
      }
    },
    async close() {
      client.close()
    },
  }
}
