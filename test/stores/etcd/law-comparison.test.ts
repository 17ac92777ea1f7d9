import { afterAll, beforeAll, test } from 'vitest'
import type { RenewAnswer, Store, Ticket } from '../../../src/contract/store.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { type EtcdServer, PATIENT_LEASES, startEtcd } from '../../servers/etcd-server.ts'
import { followsTheLaw } from '../law-comparison.ts'
import { twoProcesses } from './two-processes.ts'

let server: EtcdServer
beforeAll(async () => {
  // The law knows no waiter that is gone because a busy machine has not kept it alive.
  server = await startEtcd({ args: PATIENT_LEASES })
})
afterAll(() => server.close())

test('the etcd store follows the law step by step on its own clock', async () => {
  const store = keyByKey(etcdStore({ endpoints: [server.url] }))
  await followsTheLaw({ store, histories: 60 })
  await store.close()
}, 600_000)

test('the stores of two processes follow the law together', async () => {
  const [one, other] = [etcdStore({ endpoints: [server.url] }), etcdStore({ endpoints: [server.url] })]
  const store = twoProcesses(one, other)
  await followsTheLaw({ store, histories: 60 })
  await store.close()
}, 600_000)

/**
 * The law renews the tickets of a batch one after the other, and the etcd store renews all at once. So the etcd store's
 * `askAgainMs` of a waiter may know of a holder behind it in the list. Here no batch has two tickets of one key.
 */
function keyByKey(store: Store): Store {
  const renew = async (tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> => {
    const answers = new Map<Ticket, RenewAnswer>()
    for (const batch of batches(tickets)) {
      const answered = await store.renew(batch)
      for (const [index, ticket] of batch.entries()) answers.set(ticket, answered[index] as RenewAnswer)
    }
    return tickets.map((ticket) => answers.get(ticket) as RenewAnswer)
  }
  return new Proxy(store, {
    get(_, name: keyof Store) {
      if (name === 'renew') return renew
      const member = store[name]
      return typeof member === 'function' ? member.bind(store) : member
    },
  })
}

/** The first ticket of each key comes first, then the second of each, and so on. */
function batches(tickets: readonly Ticket[]): readonly (readonly Ticket[])[] {
  const found: Ticket[][] = []
  const counts = new Map<string, number>()
  for (const ticket of tickets) {
    const count = counts.get(ticket.key) ?? 0
    counts.set(ticket.key, count + 1)
    const batch = found[count] ?? []
    found[count] = batch
    batch.push(ticket)
  }
  return found
}
