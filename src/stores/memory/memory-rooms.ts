import { openRoom, type Room } from '../../law/room.ts'

/** A room with its key, and its neighbours in the ring of all rooms. */
export interface KeptRoom extends Room {
  key: string
  previous: KeptRoom
  next: KeptRoom
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
  /** An idle room is as good as a new one, except for its times and its fence. Making new rosters costs more than a lock. */
  readonly #spare: KeptRoom[] = []
  readonly #reaches: Room['reaches']

  constructor(reaches: Room['reaches']) {
    this.#reaches = reaches
  }

  get size(): number {
    return this.#size
  }

  get(key: string): KeptRoom | undefined {
    return this.#shards[shardOf(key)]?.get(key)
  }

  /** The key must have no room yet. */
  open(key: string, lastFence: number): KeptRoom {
    const room = this.#spare.pop() ?? (openRoom(0, this.#reaches) as KeptRoom)
    room.lastFence = lastFence
    room.key = key
    const next = this.#oldest ?? room
    const previous = this.#oldest?.previous ?? room
    room.previous = previous
    room.next = next
    previous.next = room
    next.previous = room
    this.#oldest ??= room
    this.#size += 1
    const shard = shardOf(key)
    const rooms = this.#shards[shard]
    if (rooms === undefined) this.#shards[shard] = new Map([[key, room]])
    else rooms.set(key, room)
    return room
  }

  /** The room that was not looked at for the longest time. From now on it is the newest. */
  nextToLookAt(): KeptRoom | undefined {
    const room = this.#oldest
    this.#oldest = room?.next
    return room
  }

  /** The room must be idle, and must not be used afterwards. */
  close(room: KeptRoom): void {
    const { key, previous, next } = room
    this.#shards[shardOf(key)]?.delete(key)
    this.#size -= 1
    previous.next = next
    next.previous = previous
    if (this.#oldest === room) this.#oldest = this.#size === 0 ? undefined : next
    room.closedUntil = 0
    room.nextExpiry = Number.POSITIVE_INFINITY
    if (this.#spare.length < SPARE_ROOMS) this.#spare.push(room)
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
const SPARE_ROOMS = 16
