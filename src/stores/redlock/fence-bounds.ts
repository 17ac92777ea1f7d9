import type { Quorum } from './quorum.ts'
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
  readonly #majority: number
  readonly #maxTtlUs: bigint
  /** By the place of the server. `none`: it accepts no fence, as the ticket does not hold there, or it cannot be reached. */
  readonly #bounds: (Bounds | 'none' | undefined)[]

  constructor({ servers, majority, maxTtlMs }: Quorum) {
    this.#majority = majority
    this.#maxTtlUs = BigInt(Math.ceil(maxTtlMs * 1000))
    this.#bounds = servers.map((server) => (server.isFaulty ? 'none' : undefined))
  }

  /** Whether the ticket holds on a quorum, and only the clocks keep these servers from a fence that all of them accept. */
  get areApart(): boolean {
    return this.next() === undefined && this.#count((bounds) => bounds !== undefined) >= this.#majority
  }

  /** The server gave the ticket this fence with its vote. */
  gave({ index }: RedlockServer, fence: bigint): void {
    this.#bounds[index] = { least: fence }
  }

  /** The server's answer to a claim of this fence. Undefined: it gave none. */
  told({ index }: RedlockServer, fence: bigint, answer: ClaimAnswer | undefined): void {
    switch (answer?.tag) {
      case 'accepted':
        this.#bounds[index] = bounded(fence, BigInt(answer.serverUs) + this.#maxTtlUs)
        return
      case 'too-low': {
        const before = this.#bounds[index]
        this.#bounds[index] = bounded(answer.above + 1n, before === 'none' ? undefined : before?.tooFar)
        return
      }
      case 'too-far':
        this.#bounds[index] = { least: answer.given, tooFar: fence }
        return
      default:
        this.#bounds[index] = 'none'
    }
  }

  /**
   * The fence to claim. Undefined if no quorum accepts any. Every fence of a quorum is at least the lowest one that a quorum may
   * accept. If the clocks agree, the ticket claims the largest fence, which all servers accept. But a fence that is further ahead may
   * be that of a clock that is off. It would raise the last fence of servers whose clocks are right, and these would no longer
   * agree with the others.
   */
  next(): bigint | undefined {
    const fences = this.#bounds
      .flatMap((bounds) => (bounds === undefined || bounds === 'none' ? [] : [bounds.least]))
      .filter((fence) => this.#count((bounds) => accepts(bounds, fence)) >= this.#majority)
      .sort((one, other) => (one < other ? -1 : 1))
    const [lowest] = fences
    if (lowest === undefined) return undefined
    return fences.findLast((fence) => !this.isFar(lowest, fence))
  }

  /** Whether the second fence is so far ahead of the first one that the clocks do not agree. */
  isFar(first: bigint, second: bigint): boolean {
    const tenth = this.#maxTtlUs / 10n
    return second - first > (tenth < SECOND_US ? tenth : SECOND_US)
  }

  /** Whether the servers that have told their bounds may be a quorum for this fence. */
  isKnown(fence: bigint): boolean {
    return this.#count((bounds) => bounds !== undefined && accepts(bounds, fence)) >= this.#majority
  }

  #count(counts: (bounds: Bounds | undefined) => boolean): number {
    return this.#bounds.filter((bounds) => bounds !== 'none' && counts(bounds)).length
  }
}

/** A server accepts any fence if its last fence is too far ahead, as after its clock was set back. */
function bounded(least: bigint, tooFar: bigint | undefined): Bounds {
  return tooFar !== undefined && tooFar > least ? { least, tooFar } : { least }
}

function accepts(bounds: Bounds | undefined, fence: bigint): boolean {
  if (bounds === undefined) return true
  return fence >= bounds.least && (bounds.tooFar === undefined || fence < bounds.tooFar)
}

const SECOND_US = 1_000_000n
