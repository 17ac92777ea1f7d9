import { nextRunNumber } from '../base/run-number.ts'
import { makeTopics, type TopicEvents, type Topics } from '../base/topics.ts'

/** The events of limits in this process, by name. See [Metrics of work](../../docs/metrics-work.md). */
export interface LimitEvents {
  /** The work of a call is about to run. */
  readonly begun: LimitEvent<'begun'> & {
    /** The same number at the end of this call. No other run of this process has it. */
    readonly call: number
    /** How long it waited for its slot and its points, in milliseconds. */
    readonly waitedMs: number
  }
  /** The work of a call has ended. */
  readonly ended: LimitEvent<'ended'> & {
    /** The same number as at the begin of this call. */
    readonly call: number
    /** How long it ran, in milliseconds. */
    readonly ranMs: number
  }
  /** A call was refused: too many ran, or too many had begun in the window. */
  readonly refused: LimitEvent<'refused'> & {
    readonly reason: 'concurrency' | 'rate'
    /** How long it waited, in milliseconds. */
    readonly waitedMs: number
  }
}

/** What each of these events tells. */
export interface LimitEvent<Name extends string> {
  /** The name of the event. */
  readonly event: Name
  /** When, by this process's clock, in milliseconds since 1970. */
  readonly at: number
  /** The name of the limit. */
  readonly name: string
  /** The key that the call gave. */
  readonly key: string
}

const made: { readonly topics: Topics<LimitEvents>; readonly events: TopicEvents<LimitEvents> } =
  makeTopics<LimitEvents>('limit', ['begun', 'ended', 'refused'])

const limitTopics: Topics<LimitEvents> = made.topics

/** The events of all limits of this process. Without a listener they cost nothing. */
export const limitEvents: TopicEvents<LimitEvents> = made.events

/** Tells of one call. */
export class CallTeller {
  readonly #facts: { readonly name: string; readonly key: string }
  readonly #askedAt: number

  constructor(name: string, key: string, askedAt: number) {
    this.#facts = { name, key }
    this.#askedAt = askedAt
  }

  async run<T>(work: () => Promise<T> | T): Promise<T> {
    const begunAt = performance.now()
    const call = nextRunNumber()
    if (limitTopics.begun.isHeard)
      limitTopics.begun.tell({ ...this.#facts, call, waitedMs: begunAt - this.#askedAt })
    try {
      return await work()
    } finally {
      if (limitTopics.ended.isHeard)
        limitTopics.ended.tell({ ...this.#facts, call, ranMs: performance.now() - begunAt })
    }
  }

  refused(reason: 'concurrency' | 'rate'): void {
    if (!limitTopics.refused.isHeard) return
    limitTopics.refused.tell({ ...this.#facts, reason, waitedMs: performance.now() - this.#askedAt })
  }
}
