import { SlotTags, slotOf } from '../cluster/slots.ts'

/** What the store's keys and channels are called. */
export class RoomNames {
  /** The last fence that was given for any key. */
  readonly fence: string
  /** A pattern for all keys and channels. */
  readonly everything: string
  readonly #start: string
  readonly #prefix: string
  readonly #tags: SlotTags

  constructor(prefix: string) {
    this.#prefix = prefix
    this.#start = `${prefix}{`
    this.fence = `${prefix}fence`
    this.everything = `${prefix}*`
    this.#tags = new SlotTags((tag) => this.#inSlot(tag))
  }

  /** One key for all there is to know of a room, so what the key holds between its braces decides only where it lives. */
  room(key: string): string {
    return `${this.#start}${key}}`
  }

  keyOf(room: string): string {
    return room.slice(this.#start.length, -1)
  }

  /** For SCAN: the rooms whose key starts with this text, taken literally. */
  pattern(start: string): string {
    return `${`${this.#start}${start}`.replace(/[\\*?[\]^-]/g, '\\$&')}*}`
  }

  /** Where the wakes for one store object are published. */
  channel(inbox: string): string {
    return `${this.#prefix}inbox:${inbox}`
  }

  /** In a cluster, where a script reaches the keys of one slot and no others. */
  slotOf(key: string): number {
    return slotOf(this.room(key))
  }

  /** The last fence that was given for any key of this slot: one for each slot, and not for each key, which would be left behind. */
  fenceIn(slot: number): string {
    return `${this.#inSlot(this.#tags.tagOf(slot))}fence`
  }

  /** Where the wakes for one store object are published that concern keys of this slot. */
  channelIn(slot: number, inbox: string): string {
    return `${this.#inSlot(this.#tags.tagOf(slot))}inbox:${inbox}`
  }

  /** Rooms end with a brace, these do not. */
  #inSlot(tag: string): string {
    return `${this.#prefix}{${tag}}`
  }
}
