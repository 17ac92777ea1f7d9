import { type Backoff, backoffMs } from '../../base/backoff.ts'
import type { Wake } from '../../contract/store.ts'
import type { CombinedWakes } from './combined-wakes.ts'
import type { RedlockServer } from './redlock-server.ts'

/** Subscribes to the wakes of every server. A server that is away is tried again until it is back. */
export class Listening {
  /** Resolves once wakes flow from a quorum, and rejects if that is impossible. */
  readonly flowing: Promise<void>
  readonly #wakes: CombinedWakes
  readonly #onWake: (wake: Wake) => void
  readonly #pauses = new Set<NodeJS.Timeout>()
  readonly #unlisten = new Set<() => void>()
  #closed = false

  constructor(
    servers: readonly RedlockServer[],
    {
      majority,
      wakes,
      onWake,
    }: { readonly majority: number; readonly wakes: CombinedWakes; onWake: (wake: Wake) => void },
  ) {
    this.#wakes = wakes
    this.#onWake = onWake
    this.flowing = new Promise((resolve, reject) => {
      let flowing = 0
      let failed = 0
      for (const server of servers) {
        void this.#subscribe(server, {
          flows: () => {
            flowing += 1
            if (flowing === majority) resolve()
            return flowing <= majority
          },
          fails: (error) => {
            failed += 1
            if (servers.length - failed < majority) reject(error)
          },
        })
      }
    })
  }

  close(): void {
    this.#closed = true
    for (const pause of this.#pauses) clearTimeout(pause)
    this.#pauses.clear()
    for (const unlisten of this.#unlisten) unlisten()
    this.#unlisten.clear()
  }

  async #subscribe(server: RedlockServer, first: FirstAttempt): Promise<void> {
    for (let attempt = 1; !this.#closed; attempt += 1) {
      try {
        const unlisten = await server.rooms.listen((wake) => {
          // One server alone grants nothing: whatever it says about a ticket is a hint.
          if (wake.tag === 'all') this.#onWake(wake)
          else this.#wakes.heard(wake.id, server)
        })
        if (this.#closed) return unlisten()
        this.#unlisten.add(unlisten)
        if (attempt === 1 && first.flows()) return
        // Until now wakes of this server may have been missed.
        this.#onWake({ tag: 'all' })
        return
      } catch (error) {
        if (attempt === 1) first.fails(error)
        await this.#pause(backoffMs(SUBSCRIBING, attempt))
      }
    }
  }

  #pause(pauseMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#pauses.delete(timer)
        resolve()
      }, pauseMs).unref()
      this.#pauses.add(timer)
    })
  }
}

interface FirstAttempt {
  /** Counts this server. Returns false if wakes flowed from a quorum already. */
  flows(): boolean
  fails(error: unknown): void
}

const SUBSCRIBING: Backoff = { firstMs: 500, longestMs: 5000, jitter: 0.5 }
