/**
 * Sends the requests of this process for one key one after the other, because etcd carries out concurrent requests in any order.
 */
export class SerialRequests {
  /** By key: the last request, while it is under way. */
  readonly #last = new Map<string, Promise<void>>()
  readonly #joint = new Map<string, Promise<unknown>>()
  readonly #givenUp = new Set<string>()

  run<T>(key: string, request: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key)
    const turn = before === undefined ? request() : before.then(request)
    const done = turn.then(
      () => {},
      () => {},
    )
    this.#last.set(key, done)
    void done.then(() => this.#last.get(key) === done && this.#last.delete(key))
    return turn
  }

  /** Carries out `work`, or joins the same work if it is under way. `id` says what is the same. */
  join<T>(id: string, work: () => Promise<T>): Promise<T> {
    const present = this.#joint.get(id)
    if (present !== undefined) return present as Promise<T>
    const working = work().finally(() => {
      this.#joint.delete(id)
      this.#givenUp.delete(id)
    })
    this.#joint.set(id, working)
    return working
  }

  /** Nobody wants the result of that work any more. What of it is still in line need not be sent. */
  giveUp(id: string): void {
    if (this.#joint.has(id)) this.#givenUp.add(id)
  }

  isGivenUp(id: string): boolean {
    return this.#givenUp.has(id)
  }
}
