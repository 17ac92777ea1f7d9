import type { RedlockServer } from './redlock-server.ts'
import type { ClaimAnswer } from './server-scripts.ts'

/** The fences that one server accepts for the ticket, as far as its answers tell. */
interface Bounds {
  readonly least: bigint
  /** A fence that is too far ahead of the server's time. Undefined if there was none so far. */
  readonly tooFar?: bigint
}

/** The fences that the servers accept for one ticket. A server that has told nothing yet may accept any. */
export class FenceBounds {
  readonly #servers: readonly RedlockServer[]
  readonly #majority: number
  /** By the place of the server. `none`: it accepts no fence, as the ticket does not hold there, or it cannot be reached. */
  readonly #bounds: (Bounds | 'none' | undefined)[] = []

  constructor({
    servers,
    majority,
  }: { readonly servers: readonly RedlockServer[]; readonly majority: number }) {
    this.#servers = servers
    this.#majority = majority
  }

  /** Whether some server was asked to accept a fence that is too far ahead of its time. */
  get areApart(): boolean {
    return this.#bounds.some((bounds) => bounds !== 'none' && bounds?.tooFar !== undefined)
  }

  /** The server gave the ticket this fence with its vote. */
  gave({ index }: RedlockServer, fence: bigint): void {
    this.#bounds[index] = { least: fence }
  }

  /** The server's answer to a claim of this fence. Undefined: it gave none. */
  told({ index }: RedlockServer, fence: bigint, answer: ClaimAnswer | undefined): void {
    const before = this.#bounds[index]
    const known = before === 'none' ? undefined : before
    switch (answer?.tag) {
      case 'accepted':
        this.#bounds[index] = { ...known, least: fence }
        return
      case 'too-low':
        this.#bounds[index] = { ...known, least: answer.above + 1n }
        return
      case 'too-far':
        this.#bounds[index] = { least: answer.given, tooFar: fence }
        return
      default:
        this.#bounds[index] = 'none'
    }
  }

  /** The largest fence that a quorum may accept. Undefined if there is none. */
  next(): bigint | undefined {
    let largest: bigint | undefined
    for (const bounds of this.#bounds) {
      if (bounds === undefined || bounds === 'none' || bounds.least <= (largest ?? 0n)) continue
      if (this.#acceptable(bounds.least) >= this.#majority) largest = bounds.least
    }
    return largest
  }

  #acceptable(fence: bigint): number {
    return this.#servers.filter(({ index }) => {
      const bounds = this.#bounds[index]
      if (bounds === undefined || bounds === 'none') return bounds === undefined
      return fence >= bounds.least && (bounds.tooFar === undefined || fence < bounds.tooFar)
    }).length
  }
}
