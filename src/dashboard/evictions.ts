import { expected } from '../base/arguments.ts'
import { messageOf } from '../base/thrown.ts'
import type { Locks } from '../index.ts'

/** Some holders of a key: all up to this fence. */
interface AskedHolders {
  readonly key: string
  readonly fence: bigint
}

export interface Evictions {
  /** How many holders were evicted. */
  readonly evicted: number
  /** In how many keys there was none of those holders any more. */
  readonly gone: number
  /** Why some could not be evicted. */
  readonly message: string | undefined
}

/**
 * Reads which holders a body names. Nobody who has taken a key since then is among them, because fences rise.
 *
 * @throws {InvalidArgumentError} when the body names none, or other keys than those that are shown.
 */
export function askedHoldersIn(asked: unknown, prefix: string): readonly AskedHolders[] {
  const isList = Array.isArray(asked) && asked.length > 0 && asked.length <= MOST_KEYS
  if (!isList) throw expected('holders', `a list of 1 to ${MOST_KEYS} keys with their fences`, asked)
  return asked.map((each: Partial<Record<string, unknown>> | null) => {
    const { key, fence } = each ?? {}
    if (
      typeof key !== 'string' ||
      !key.startsWith(prefix) ||
      typeof fence !== 'string' ||
      !/^\d{1,20}$/.test(fence)
    )
      throw expected('holders', 'keys that are shown here, with their fences', each)
    return { key, fence: BigInt(fence) }
  })
}

/** Evicts these holders, and leaves the waiters. An error with one key does not keep the others. */
export async function evictHolders(
  locks: Pick<Locks, 'peek' | 'evict'>,
  holders: readonly AskedHolders[],
  { reason, onEvicted }: { readonly reason: string; onEvicted(key: string, ids: readonly string[]): void },
): Promise<Evictions> {
  let [evicted, gone] = [0, 0]
  let message: string | undefined
  const evictOne = async ({ key, fence }: AskedHolders): Promise<void> => {
    try {
      const room = await locks.peek(key)
      const asked = room?.holders.filter((holder) => holder.fence <= fence) ?? []
      let isGone = true
      for (const { id } of asked) {
        const ids = await locks.evict(key, id, { reason })
        onEvicted(key, ids)
        evicted += ids.length
        if (ids.length > 0) isGone = false
      }
      if (isGone) gone += 1
    } catch (error) {
      message ??= messageOf(error)
    }
  }
  for (let from = 0; from < holders.length; from += TOGETHER)
    await Promise.all(holders.slice(from, from + TOGETHER).map(evictOne))
  return { evicted, gone, message }
}

/**
 * Reads which tickets of a key a body names.
 *
 * @throws {InvalidArgumentError} when the body names none.
 */
export function askedTicketsIn(asked: unknown): readonly string[] {
  const isList = Array.isArray(asked) && asked.length > 0 && asked.length <= MOST_TICKETS
  if (!isList || !asked.every((id) => typeof id === 'string'))
    throw expected('ids', `a list of 1 to ${MOST_TICKETS} ids of tickets`, asked)
  return asked
}

/**
 * Evicts these holders and waiters of a key. Whoever came later stays. The waiters go first: else the key would be granted to those
 * that are evicted next. Resolves with the ids of the evicted tickets.
 */
export async function evictTickets(
  locks: Pick<Locks, 'peek' | 'evict'>,
  { key, ids, reason }: { readonly key: string; readonly ids: readonly string[]; readonly reason: string },
  onEvicted: (ids: readonly string[]) => void,
): Promise<readonly string[]> {
  const evicted: string[] = []
  const evictOne = async (id: string): Promise<void> => {
    const found = await locks.evict(key, id, { reason })
    onEvicted(found)
    evicted.push(...found)
  }
  const room = ids.length === 1 ? null : await locks.peek(key)
  const holding = new Set(room?.holders.map(({ id }) => id))
  for (const those of [ids.filter((id) => !holding.has(id)), ids.filter((id) => holding.has(id))])
    for (let from = 0; from < those.length; from += TOGETHER)
      await Promise.all(those.slice(from, from + TOGETHER).map(evictOne))
  return evicted
}

const MOST_KEYS = 1000
const MOST_TICKETS = 1000
const TOGETHER = 20
