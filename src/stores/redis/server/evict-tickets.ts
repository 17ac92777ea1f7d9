import type { EvictRequest } from '../../../contract/store.ts'
import { evictAnswer } from './answers.ts'
import { layoutErrorOf } from './failures.ts'
import type { RoomSource } from './room-pages.ts'
import type { Partition } from './topology.ts'

/** Removes tickets by force. A large queue goes in parts. `hasMore`: more waiters can be admitted than this call has. */
export async function evictTickets(
  { topology, names }: RoomSource,
  { key, id = '', reason, onlyIfWaiting = false }: EvictRequest,
): Promise<{ readonly evicted: readonly string[]; readonly hasMore: boolean }> {
  const room = names.room(key)
  const [[partition]] = topology.divide([{ key }]) as [[Partition, unknown]]
  const args = ['', '2', partition.fence, room, id, JSON.stringify(reason), onlyIfWaiting ? 'w' : '']
  const parts: (readonly string[])[] = []
  for (;;) {
    const reply = await partition.run(topology.scripts.evict, args)
    if (typeof reply === 'string' && reply[0] === '?') throw layoutErrorOf(key, room, reply.slice(1))
    const { more, removed } = evictAnswer(reply)
    parts.push(removed)
    if (more === 'to evict' && parts.length < MOST_PARTS) continue
    // Each part is the end of the queue.
    return { evicted: parts.reverse().flat(), hasMore: more === 'to admit' }
  }
}

/** Enough for two million waiters. An eviction ends although new waiters come as fast. */
const MOST_PARTS = 10_000
