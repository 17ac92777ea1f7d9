import type { ServerConnection } from '../server/connection.ts'
import type { Script } from '../server/scripts.ts'
import type { StoredRooms } from '../server/stored-rooms.ts'
import type { Partition } from '../server/topology.ts'

/** Sends requests to the server that has a slot, also while the slot moves to another one. */
export interface SlotRouter {
  reach<Reply>(slot: number, request: SlotRequest<Reply>): Promise<Reply>
  /** Subscribes to the slot's own channel on its server, so that a wake reaches this process alone. */
  listenTo(slot: number, untilMs: number): void
}

export interface SlotRequest<Reply> {
  readonly run: (connection: ServerConnection) => Promise<Reply>
  /** On a server that is importing the slot, sent there by the server that still has it. */
  readonly ask: (connection: ServerConnection) => Promise<Reply>
}

/** One slot of a cluster. */
export class SlotPartition implements Partition {
  readonly fence: string
  readonly #router: SlotRouter
  readonly #slot: number

  constructor(router: SlotRouter, { slot, fence }: { readonly slot: number; readonly fence: string }) {
    this.#router = router
    this.#slot = slot
    this.fence = fence
  }

  run(script: Script, args: string[]): Promise<unknown> {
    return this.#router.reach(this.#slot, {
      run: (connection) => connection.run(script, args),
      ask: (connection) => connection.runAsking(script, args),
    })
  }

  read(names: readonly string[]): Promise<StoredRooms> {
    return this.#router.reach(this.#slot, {
      run: (connection) => connection.read(names),
      ask: (connection) => connection.readAsking(names),
    })
  }

  awaited(askAgainMs: number): void {
    this.#router.listenTo(this.#slot, askAgainMs + LINGER_MS)
  }
}

/** The subscription outlives the waiter's next request by this long, so that it is not ended in between. */
const LINGER_MS = 2000
