import { Etcd3, EtcdLockFailedError } from 'etcd3'
import type { Opener } from '../library.ts'

export const open: Opener['open'] = async ({ ports: [port], ttlMs }) => {
  const client = new Etcd3({ hosts: `http://127.0.0.1:${port}` })
  return {
    async acquire(key) {
      const lock = client.lock(key).ttl(ttlMs / 1000)
      try {
        await lock.acquire()
      } catch (error) {
        if (error instanceof EtcdLockFailedError) return null
        throw error
      }
      return {
        lost: undefined,
        async release() {
          await lock.release()
        },
      }
    },
    hold: (key, work) =>
      client
        .lock(key)
        .ttl(ttlMs / 1000)
        .do(() => work(undefined)),
    async close() {
      client.close()
    },
  }
}
