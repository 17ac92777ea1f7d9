/** Rooms with more waiters to let in than one call may. */
export class UnfinishedRooms {
  readonly #keys = new Set<string>()
  readonly #settle: (key: string) => Promise<unknown>
  #isFinishing = false

  /** `settle` makes a call that lets waiters into the room. The answer to that call may name the room again. */
  constructor(settle: (key: string) => Promise<unknown>) {
    this.#settle = settle
  }

  add(key: string): void {
    this.#keys.add(key)
    if (!this.#isFinishing) void this.#finish()
  }

  /** Lets the rest in, one call after the other. If a call fails, the next request for the room goes on. */
  async #finish(): Promise<void> {
    this.#isFinishing = true
    for (const key of this.#keys) {
      this.#keys.delete(key)
      await this.#settle(key).catch(() => {})
    }
    this.#isFinishing = false
  }
}
