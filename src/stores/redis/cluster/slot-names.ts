import type { RoomNames } from '../server/room-names.ts'
import { SlotTags, slotOf } from './slots.ts'

/** Names of the keys and channels that a cluster has once for each slot. A script reaches the keys of one slot alone. */
export class SlotNames {
  readonly #names: RoomNames
  readonly #tags: SlotTags

  constructor(names: RoomNames) {
    this.#names = names
    this.#tags = new SlotTags((tag) => this.#inSlot(tag))
  }

  /** The slot of a room. */
  slotOf(key: string): number {
    return slotOf(this.#names.room(key))
  }

  /** The last fence that was given for any key of this slot: one for each slot, and not for each key, which would be left behind. */
  fenceIn(slot: number): string {
    return `${this.#inSlot(this.#tags.tagOf(slot))}fence`
  }

  /** The channel for the wakes of one inbox that concern keys of this slot. */
  channelIn(slot: number, inbox: string): string {
    return `${this.#inSlot(this.#tags.tagOf(slot))}inbox:${inbox}`
  }

  /** Rooms end with a brace, these names do not. */
  #inSlot(tag: string): string {
    return `${this.#names.prefix}{${tag}}`
  }
}
