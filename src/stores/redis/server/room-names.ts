/** The names of the store's keys and channels. */
export class RoomNames {
  /** The prefix of all keys and channels. */
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

  /**
   * One key holds everything about a room. So the text between the braces of its name decides only on which server the
   * key is.
   */
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
