import { setTimeout as sleep } from 'node:timers/promises'
import { Pool } from 'pg'
import type { Store } from '../../src/contract/index.ts'
import { createLocks } from '../../src/index.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import type { Surroundings } from '../adapter.ts'
import type { Candidate } from '../scenario.ts'

/**
 * So many waiters of one process on a key that stays held. Per second: requests, the tickets that they ask about, and the share of a
 * processor that the process uses, in per cent. On SQLite and PostgreSQL a group of tickets costs a few
 * statements.
 */
export function idleOn(open: (surroundings: Surroundings) => Store, waiters: number): Candidate {
  return {
    name: `holdfast, ${waiters.toLocaleString('en')} waiters`,
    async measure(surroundings, { quick }) {
      let requests = 0
      let asked = 0
      const store = open(surroundings)
      const renew = store.renew.bind(store)
      const counting: Pick<Store, 'renew'> = {
        renew: (tickets) => {
          requests += 1
          asked += tickets.length
          return renew(tickets)
        },
      }
      await wait(createLocks(Object.assign(store, counting)), waiters)
      const durationMs = quick ? 6000 : 20_000
      const before = { requests, asked, cpu: process.cpuUsage() }
      await sleep(durationMs)
      const { user, system } = process.cpuUsage(before.cpu)
      return [
        ((requests - before.requests) / durationMs) * 1000,
        ((asked - before.asked) / durationMs) * 1000,
        ((user + system) / 1000 / durationMs) * 100,
      ]
    },
  }
}

export function onSqlite({ folder }: Surroundings): Store {
  return sqliteStore(`${folder}/idle.db`)
}

export function onPostgres({ postgresUrl }: Surroundings): Store {
  return postgresStore(new Pool({ connectionString: postgresUrl }))
}

/** The same on etcd. Per second: requests, and the shares of a processor that the server and the process use, in per cent. */
export function idleOnEtcd(waiters: number): Candidate {
  return {
    name: `holdfast, ${waiters.toLocaleString('en')} waiters`,
    async measure({ etcdUrl }, { quick }) {
      await wait(createLocks(etcdStore({ endpoints: [etcdUrl] })), waiters)
      const durationMs = quick ? 6000 : 20_000
      const before = { ...(await countsOf(etcdUrl)), cpu: process.cpuUsage() }
      await sleep(durationMs)
      const { user, system } = process.cpuUsage(before.cpu)
      const { requests, usedMs } = await countsOf(etcdUrl)
      return [
        ((requests - before.requests) / durationMs) * 1000,
        ((usedMs - before.usedMs) / durationMs) * 100,
        ((user + system) / 1000 / durationMs) * 100,
      ]
    },
  }
}

/** Resolves when so many wait for a key, and have asked a few times. They are left to the end of the process. */
async function wait(locks: ReturnType<typeof createLocks>, waiters: number): Promise<void> {
  let queued = 0
  locks.on('queued', () => {
    queued += 1
  })
  // On a server, the candidate before it may have left a key that is still held.
  const key = `idle ${process.pid}`
  await locks.acquire(key, { ttl: '10m' })
  for (let count = 0; count < waiters; count += 1) void locks.acquire(key, { wait: Number.POSITIVE_INFINITY })
  while (queued < waiters) await sleep(100)
  await sleep(4000)
}

/** What an etcd server says of itself: how many requests it has answered, messages of streams included, and its processor time. */
async function countsOf(url: string): Promise<{ requests: number; usedMs: number }> {
  const facts = await (await fetch(new URL('/metrics', url))).text()
  const sumOf = (name: string): number => {
    let sum = 0
    for (const [, value] of facts.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm')))
      sum += Number(value)
    return sum
  }
  return {
    requests: sumOf('grpc_server_msg_received_total'),
    usedMs: sumOf('process_cpu_seconds_total') * 1000,
  }
}
