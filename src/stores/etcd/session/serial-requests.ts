/**
 * Sends the requests of this process for one key one after the other, because etcd carries out concurrent requests in any order.
 */
export class SerialRequests {
  /** By key: the last request, while it is under way. */
  readonly #last = new Map<string, Promise<void>>()

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
}
