import type { Line } from '../server/connection.ts'
import type { Script } from '../server/scripts.ts'
import type { Place } from '../server/topology.ts'

/** Brings requests to whoever has a slot, wherever that moves. */
export interface SlotRouter {
  reach(slot: number, request: SlotRequest): Promise<unknown>
  /** Somebody waits for a key of the slot: the server that has it is to tell nobody but us. */
  listenTo(slot: number, untilMs: number): void
}

export interface SlotRequest {
  readonly run: (line: Line) => Promise<unknown>
  /** Of a server that takes the slot over, on behalf of the one that had it. */
  readonly ask: (line: Line) => Promise<unknown>
}

/** One slot of a cluster. */
export class SlotPlace implements Place {
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
      run: (line) => line.run(script, args),
      ask: (line) => line.runAsking(script, args),
    })
  }

  runUnproven(script: Script, args: string[]): Promise<unknown> {
    return this.#router.reach(this.#slot, {
      run: (line) => line.runUnproven(script, args),
      ask: (line) => line.runAsking(script, args),
    })
  }

  awaited(askAgainMs: number): void {
    this.#router.listenTo(this.#slot, askAgainMs + LINGER_MS)
  }
}

/** How much longer we listen than until a waiter asks again, so that a busy key is not left in between. */
const LINGER_MS = 2000
