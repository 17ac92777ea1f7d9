import { expect } from 'vitest'
import type { Store, Wake } from '../../../src/contract/store.ts'
import type { Lease } from '../../../src/index.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'

/**
 * Plays a fail-over with a holder and a waiter whose room was replicated before. The store learns of the new master at
 * once, both keep their places, and the next fence is higher.
 */
export async function keepsPlaces(
  store: Store,
  { key, failOver }: { readonly key: string; readonly failOver: () => Promise<unknown> },
): Promise<void> {
  const wakes: Wake[] = []
  await store.listen?.((wake) => wakes.push(wake))
  const [holder, waiter] = [ticket({ key }), ticket({ key })]
  const fence = fenceOf(await store.acquire(holder))
  await store.acquire(waiter)
  await failOver()
  await until('everything is to be asked again', () => wakes.some(({ tag }) => tag === 'all'))
  expect(await answered(() => store.renew([holder, waiter]))).toMatchObject([
    { tag: 'held', fence },
    { tag: 'queued' },
  ])
  await store.release(releaseOf(holder))
  await until('the head is woken', () => wakes.some((wake) => wake.tag !== 'all' && wake.id === waiter.id))
  expect(fenceOf((await store.renew([waiter]))[0]) > fence).toBe(true)
  await store.release(releaseOf(waiter))
}

/**
 * Listens for the loss of a lease. The function that it returns waits until the lease was lost because the store has
 * forgotten it.
 */
export function hearsReset({ signal }: Lease): () => Promise<void> {
  let reason: unknown
  signal.addEventListener('abort', () => {
    reason = signal.reason
  })
  return async () => {
    await until('the holder is told', () => reason !== undefined)
    expect(reason).toMatchObject({ code: 'lease-lost', reason: 'store-reset' })
  }
}

/** The store's answer, once it gives one. */
export async function answered<T>(ask: () => T | Promise<T>): Promise<T> {
  return (await until('the store answers again', async () => {
    try {
      return await ask()
    } catch {
      return undefined
    }
  })) as T
}
