import type { Wrap } from '../base/around.ts'
import { nextRunNumber } from '../base/run-number.ts'
import { makeTopics, type TopicEvents, type Topics } from '../base/topics.ts'
import type { StopReason } from './term.ts'

/** The events of lock workers in this process, by name. See [Metrics of work](../../docs/metrics-work.md). */
export interface WorkerEvents {
  /** The worker holds its key, and `start` is about to be called. */
  readonly begun: TermEvent<'begun'> & {
    /** Runs `start` inside of a function. The function must call `run` at once. */
    readonly around: (wrap: Wrap) => void
  }
  /** The term is over: `stop` has ended, or `start` has failed. */
  readonly ended: TermEvent<'ended'> & {
    /** How long the term took from `start` on, in milliseconds. */
    readonly ranMs: number
    /** As `stop` got it; `failed` also if `start` has failed. */
    readonly reason: StopReason
    /** What `start` or `stop` threw. */
    readonly error: unknown
  }
}

/** What each of these events tells. */
export interface TermEvent<Name extends string> {
  /** The name of the event. */
  readonly event: Name
  /** When, by this process's clock, in milliseconds since 1970. */
  readonly at: number
  /** The key that the worker holds. */
  readonly key: string
  /** The fence of the term. */
  readonly fence: bigint
  /** The same number at the begin and the end of this term. No other run of this process has it. */
  readonly run: number
}

const made: { readonly topics: Topics<WorkerEvents>; readonly events: TopicEvents<WorkerEvents> } =
  makeTopics<WorkerEvents>('worker', ['begun', 'ended'])

const workerTopics: Topics<WorkerEvents> = made.topics

/** The events of all lock workers of this process. Without a listener they cost nothing. */
export const workerEvents: TopicEvents<WorkerEvents> = made.events

/** Tells of the terms of one worker. */
export class TermTeller {
  readonly #key: string
  #startedAt = 0
  #run = 0

  constructor(key: string) {
    this.#key = key
  }

  async start({ fence }: { readonly fence: bigint }, start: () => unknown): Promise<void> {
    this.#startedAt = performance.now()
    this.#run = nextRunNumber()
    try {
      await workerTopics.begun.runAround(() => ({ key: this.#key, fence, run: this.#run }), start)
    } catch (error) {
      this.#ended(fence, 'failed', error)
      throw error
    }
  }

  async stop(reason: StopReason, { fence }: { readonly fence: bigint }, stop: () => unknown): Promise<void> {
    let failure: unknown
    try {
      await stop()
    } catch (error) {
      failure = error
      throw error
    } finally {
      this.#ended(fence, reason, failure)
    }
  }

  #ended(fence: bigint, reason: StopReason, error: unknown): void {
    if (!workerTopics.ended.isHeard) return
    workerTopics.ended.tell({
      key: this.#key,
      fence,
      run: this.#run,
      ranMs: performance.now() - this.#startedAt,
      reason,
      error,
    })
  }
}
