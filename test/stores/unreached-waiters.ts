import { expect } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import type { FaultProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

/** Two processes: the connections of `far` can be cut, and those of `near` stay. Both hear their messages at first. */
export interface TwoProcesses {
  readonly near: Store
  readonly far: Store
  /** In front of `far`. */
  readonly proxy: FaultProxy
  /** Resolves once the server knows that only `near` hears its messages. */
  untilUnreached(): Promise<unknown>
}

export async function offerPassesUnreachedWaiter({
  near,
  far,
  proxy,
  untilUnreached,
}: TwoProcesses): Promise<void> {
  const [holder, unreached, next, last] = [ticket(), ticket(), ticket(), ticket()]
  const fence = fenceOf(await near.acquire(holder))
  expect(await far.acquire(unreached)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await near.acquire(next)).toMatchObject({ tag: 'queued', ahead: 1 })
  expect(await near.acquire(last)).toMatchObject({ tag: 'queued', ahead: 2 })
  proxy.refuse()
  await untilUnreached()
  await near.release(releaseOf(holder))
  expect(fenceOf(await near.acquire(next)) > fence).toBe(true)
  expect((await roomOf(near))?.queue).toMatchObject([{ id: unreached.id }, { id: last.id }])
  // Its process lives, and comes back before the next turn.
  proxy.normal()
  await until('it can ask', async () => {
    const [answer] = await Promise.allSettled([far.acquire(unreached)])
    return answer.status === 'fulfilled' && answer.value.tag === 'queued'
  })
  await near.release(releaseOf(next))
  expect(await near.acquire(last)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(fenceOf(await far.acquire(unreached)) > fence).toBe(true)
}

/** `silent` is the store of a process that does not listen. */
export async function waiterWithoutMessagesKeepsItsTurn(near: Store, silent: Store): Promise<void> {
  const [holder, early, next] = [ticket(), ticket(), ticket()]
  const fence = fenceOf(await near.acquire(holder))
  expect(await silent.acquire(early)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await near.acquire(next)).toMatchObject({ tag: 'queued', ahead: 1 })
  await near.release(releaseOf(holder))
  expect(await near.acquire(next)).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(fenceOf(await silent.acquire(early)) > fence).toBe(true)
}

export async function headOfUnreachedQueueIsOffered({
  near,
  far,
  proxy,
  untilUnreached,
}: TwoProcesses): Promise<void> {
  const [holder, ...waiters] = [ticket(), ticket(), ticket(), ticket()] as const
  fenceOf(await near.acquire(holder))
  for (const waiter of waiters) await far.acquire(waiter)
  proxy.refuse()
  await untilUnreached()
  await near.release(releaseOf(holder))
  const room = await roomOf(near)
  expect(room?.holders).toMatchObject([{ id: waiters[0].id, state: 'offered' }])
  expect(room?.queue).toHaveLength(2)
}

async function roomOf(store: Store) {
  return (await store.inspect({ prefix: 'key', cursor: undefined, count: 1 })).rooms[0]
}
