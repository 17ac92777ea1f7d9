/** The names of the store's keys and channels. */
export class RoomNames {
  /** What all keys and channels begin with. */
  readonly prefix: string
  /** The last fence that was given for any key. */
  readonly fence: string
  /** A pattern for all keys and channels. */
  readonly everything: string
  readonly #start: string

  constructor(prefix: string) {
    this.prefix = prefix
    this.#start = `${prefix}{`
    this.fence = `${prefix}fence`
    this.everything = `${prefix}*`
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
    return `${this.prefix}inbox:${inbox}`
  }
}
