import { Redis } from 'ioredis'
import type { Adapter } from '../adapter.ts'

const RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

/** The baseline for a quorum: SET NX PX and a compare-and-delete on all servers, each over when most have answered. */
export async function openBareQuorum(ports: readonly number[]): Promise<Adapter> {
  const clients = ports.map((port) => new Redis({ port, host: '127.0.0.1', enableOfflineQueue: false }))
  const deletes = clients.map((client) => {
    client.on('error', () => {})
    client.defineCommand('compareAndDelete', { numberOfKeys: 1, lua: RELEASE })
    const { compareAndDelete } = client as unknown as {
      compareAndDelete(key: string, token: string): Promise<number>
    }
    return (key: string, token: string) => compareAndDelete.call(client, key, token)
  })
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once('ready', resolve))))
  const quorum = Math.floor(ports.length / 2) + 1
  let count = 0
  return {
    async acquire(key) {
      count += 1
      const token = `${process.pid}-${count}`
      await most(
        clients.map((client) => client.set(key, token, 'PX', 30_000, 'NX')),
        quorum,
      )
      return () =>
        most(
          deletes.map((compareAndDelete) => compareAndDelete(key, token)),
          quorum,
        )
    },
    async close() {
      for (const client of clients) client.disconnect()
    },
  }
}

function most(replies: readonly Promise<unknown>[], quorum: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let granted = 0
    let failed = 0
    for (const reply of replies) {
      reply.then(
        (answer) => {
          if (answer !== 'OK' && answer !== 1) failed += 1
          else granted += 1
          if (granted === quorum) resolve()
        },
        () => {
          failed += 1
          if (replies.length - failed < quorum) reject(new Error('no quorum'))
        },
      )
    }
  })
}
