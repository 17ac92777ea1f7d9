import { Lone } from '../../law/lone.ts'
import type { Room } from '../../law/room.ts'

/** What is kept of a key, and its neighbours in the ring of all keys. */
export class KeptRoom extends Lone {
  readonly key: string
  previous: KeptRoom = this
  next: KeptRoom = this
  /** `undefined`: the key is a lone one. Then the fields of {@link Lone} say all that there is to know, and otherwise nothing. */
  room: Room | undefined = undefined

  constructor(key: string, lastFence: number) {
    super(lastFence)
    this.key = key
  }
}

/**
 * The rooms of a memory store by key, and a ring of them to look at one after the other.
 *
 * One Map would do for a few keys. With a million, it stops the process for 100 ms each time that it grows, and it cannot
 * say what its oldest entry is: it walks over all that were removed in front (with 300,000 keys that took 74 µs). So the
 * keys are spread over many Maps, and the ring says which room was not looked at for the longest time.
 */
export class MemoryRooms {
  readonly #shards: (Map<string, KeptRoom> | undefined)[] = new Array(SHARDS).fill(undefined)
  /** The room to look at next. The newest room is the one before it. */
  #oldest: KeptRoom | undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  get(key: string): KeptRoom | undefined {
    return this.#shards[shardOf(key)]?.get(key)
  }

  /** The key must have no room yet. */
  open(key: string, lastFence: number): KeptRoom {
    const kept = new KeptRoom(key, lastFence)
    if (this.#oldest === undefined) this.#oldest = kept
    else {
      const next = this.#oldest
      const { previous } = next
      kept.previous = previous
      kept.next = next
      previous.next = kept
      next.previous = kept
    }
    this.#size += 1
    const shard = shardOf(key)
    const rooms = this.#shards[shard]
    if (rooms === undefined) this.#shards[shard] = new Map([[key, kept]])
    else rooms.set(key, kept)
    return kept
  }

  /** The room that was not looked at for the longest time. From now on it is the newest. */
  nextToLookAt(): KeptRoom | undefined {
    const kept = this.#oldest
    this.#oldest = kept?.next
    return kept
  }

  /** The room must be idle, and must not be used afterwards. */
  close(kept: KeptRoom): void {
    const { key, previous, next } = kept
    this.#shards[shardOf(key)]?.delete(key)
    this.#size -= 1
    previous.next = next
    next.previous = previous
    if (this.#oldest === kept) this.#oldest = this.#size === 0 ? undefined : next
  }

  *keys(): Generator<string, void, void> {
    for (const rooms of this.#shards) if (rooms !== undefined) yield* rooms.keys()
  }
}

/** By the end of the key, in which keys differ most. If they do not, the other Maps stay empty, and nothing is wrong. */
function shardOf(key: string): number {
  let hash = key.length
  for (let index = Math.max(0, key.length - HASHED); index < key.length; index += 1)
    hash = (hash * 31 + key.charCodeAt(index)) | 0
  return (hash ^ (hash >>> 8)) & (SHARDS - 1)
}

const SHARDS = 256
const HASHED = 8
