import type { ParsedArguments } from '../arguments.ts'
import { openLocks } from '../open-locks.ts'
import { storeName } from '../store-name.ts'
import { placeOf } from '../store-option.ts'
import { printLooks } from './batch.ts'
import { type Evict, showLive } from './live.ts'
import type { Sort } from './sorts.ts'

export async function showTop(given: ParsedArguments): Promise<number> {
  given.refuseWords(' A prefix goes into --prefix.')
  const everyMs = given.duration('interval', { leastMs: SHORTEST_MS }) ?? 1000
  const count = given.flag('once') ? 1 : given.count('count', { least: 1, most: 1_000_000_000 - 1 })
  const { url } = await placeOf(given)
  // A connection of its own, as to look takes fewer rights.
  const evict: Evict = async (key, ids, reason) => {
    await using writer = await openLocks(url, { label: 'holdfast top' })
    const evicted = await Promise.all(ids.map((id) => writer.evict(key, id, { reason })))
    return evicted.flat()
  }
  const options = {
    evict,
    store: storeName(url),
    prefix: given.text('prefix') ?? '',
    everyMs,
    order: { sort: given.choice<Sort>('sort') ?? 'waiting', isReversed: given.flag('reverse') },
  }
  const asJson = given.flag('json')
  await using locks = await openLocks(url, { readOnly: true })
  if (count === undefined && !asJson && !given.flag('batch') && isLive())
    return await showLive(locks, options)
  return await printLooks(locks, { ...options, count, asJson })
}

/** Whether input and output are a terminal that can show a changing page. */
function isLive(): boolean {
  return process.stdin.isTTY && process.stdout.isTTY && process.env['TERM'] !== 'dumb'
}

const SHORTEST_MS = 100
