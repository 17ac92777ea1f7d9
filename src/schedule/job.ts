import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused } from '../base/clock.ts'
import { ClosedError, TaskFailedError } from '../errors.ts'
import { isHoldfastError, type Lease, type Locks, type StopOptions } from '../index.ts'
import { Course, LONGEST_SLEEP_MS } from './course.ts'
import { type Begin, LONGEST_MS, Marks, type Sighting, type TickResult } from './marks.ts'
import { type JobSettings, parseStopOptions, type ScheduleSettings } from './options.ts'
import { type FinishedRun, GRACE_MS, Run, type RunEnd, type ScheduledRun } from './run.ts'
import type { ScheduledJob, ScheduleStatus } from './scheduled-job.ts'
import { Ticks } from './ticks.ts'

export interface JobParts {
  readonly locks: Locks
  readonly name: string
  readonly expression: string
  readonly work: (run: ScheduledRun) => unknown
  readonly schedule: ScheduleSettings
  readonly settings: JobSettings
  readonly onStop: () => void
}

export class Job implements ScheduledJob {
  readonly name: string
  readonly expression: string
  readonly timezone: string
  readonly #parts: JobParts
  readonly #ticks: Ticks
  readonly #marks: Marks
  readonly #stopping = new AbortController()
  readonly #runs = new Set<Run>()
  /** All that `stop()` has to wait for. */
  readonly #going = new Set<Promise<unknown>>()
  #course: Course
  #isStarted = false
  #last: FinishedRun | undefined

  /** @throws {InvalidArgumentError} when the expression or the zone is none. */
  constructor(parts: JobParts) {
    this.name = parts.name
    this.expression = parts.expression
    this.timezone = parts.settings.timezone
    this.#parts = parts
    this.#ticks = new Ticks(this.expression, this.timezone, parts.schedule.clock.wallMs())
    this.#course = this.#newCourse()
    this.#marks = new Marks(parts.locks, parts.name, this.#stopping.signal)
    // Makes nothing, and refuses what no store keeps as it is.
    parts.locks.readWrite(this.#marks.lock)
  }

  get next(): Date | undefined {
    const { next } = this.#course
    return next === undefined ? undefined : new Date(next)
  }

  get last(): FinishedRun | undefined {
    return this.#last
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    this.#course = this.#newCourse()
    void this.#track(this.#keepTime())
  }

  runNow(): Promise<FinishedRun> {
    return new Promise((resolve, reject) => {
      void this.#track(this.#runNow({ resolve, reject }).catch(reject))
    })
  }

  async status(): Promise<ScheduleStatus> {
    const { nowMs } = this.#course
    const running = await this.#marks.running()
    return {
      next: this.next,
      running: running === undefined ? undefined : { owner: running.owner, since: before(nowMs, running) },
      last: await this.#lastSettled(nowMs),
    }
  }

  async stop(options: StopOptions = {}): Promise<void> {
    const graceMs = parseStopOptions(options, this.#parts.schedule.graceMs)
    const reason = this.#closed()
    this.#stopping.abort(reason)
    const idle = new AbortController()
    const ended = Promise.allSettled(this.#going).then(() => idle.abort())
    if (this.#runs.size > 0) await paused(this.#parts.schedule.clock, graceMs, idle.signal)
    await Promise.all(Array.from(this.#runs, (run) => run.stop(reason)))
    await ended
    this.#parts.onStop()
  }

  /** Attends to one tick after the other, until it is stopped. Never rejects. */
  async #keepTime(): Promise<void> {
    // Work may wait for something that does not keep the process alive by itself.
    const alive = setInterval(() => {}, 2 ** 30)
    try {
      await this.#attendToAll()
    } finally {
      clearInterval(alive)
    }
  }

  async #attendToAll(): Promise<void> {
    const { schedule } = this.#parts
    const course = this.#course
    const stopping = this.#stopping.signal
    for (let failures = 0; !stopping.aborted; ) {
      try {
        if (course.shouldLearn) course.learn(await this.#marks.knownForMs(this.expression, this.timezone))
        const tick = course.due()
        if (tick === undefined) await paused(schedule.clock, course.idleMs, stopping)
        else {
          await this.#attend(tick)
          course.attended(tick)
        }
        failures = 0
      } catch (error) {
        if (stopping.aborted) return
        schedule.onError(error, { name: this.name, during: 'store' })
        if (isHoldfastError(error, 'closed')) return
        failures += 1
        await paused(schedule.clock, backoffMs(ASKING_AGAIN, failures), stopping)
      }
    }
  }

  async #attend(tickMs: number): Promise<void> {
    if (await this.#marks.isSettled(tickMs)) return
    await this.#underLock({ wait: Number.POSITIVE_INFINITY }, async (lease) => {
      // Whoever we waited for may have settled it.
      if (await this.#marks.isSettled(tickMs)) return
      // Nobody was there in time. But a run that broke off is taken over however long it had lasted.
      if (this.#course.isLate(tickMs) && !(await this.#marks.hasBegun(tickMs))) return
      // It must be there still when the key of a process that died runs out.
      const rememberMs = Math.min(this.#rememberMs(tickMs) + 2 * lease.toJSON().ttlMs, LONGEST_MS)
      const most = this.#parts.settings.afterCrash === 'skip' ? 1 : MOST_ATTEMPTS
      const begin = await this.#marks.begin(tickMs, { most, rememberMs })
      try {
        // The answer took its time: another process may have the job by now, and the run that has begun may be its own.
        lease.assertHeld()
      } catch (error) {
        // No run has begun here, so none is counted.
        await begin?.lease.release()
        throw error
      }
      if (begin === undefined) return this.#giveUp(tickMs, lease, most)
      // Whoever stopped us looked after runs that were going on.
      if (this.#stopping.signal.aborted) return begin.lease.release()
      await this.#runTick(tickMs, lease, begin)
    })
  }

  async #runTick(tickMs: number, lease: Lease, begin: Begin): Promise<void> {
    const startedMs = this.#course.nowMs
    const { end } = await this.#run(new Date(tickMs), lease, begin.attempt)
    if (end.result === 'interrupted' || (end.result === 'failed' && end.isLost)) {
      // The next one who has the key sees that it began, and takes it over. A rolling deploy that interrupts run after run counts once.
      const counts = end.result === 'failed' || begin.attempt === 1
      if (!counts) await this.#tell(() => begin.lease.release())
      else if (begin.lease.remainingMs > 0) begin.lease.detach()
      return
    }
    if (!(await this.#settleUnder(lease, tickMs, end.result))) {
      if (begin.lease.remainingMs > 0) begin.lease.detach()
      return
    }
    await this.#tell(async () => {
      await begin.lease.release()
      await this.#marks.forgetBegins(tickMs, begin.attempt - 1)
    })
    await this.#stayTaken(startedMs, lease)
  }

  /** Work that ends its process would end all of them, one after the other. */
  async #giveUp(tickMs: number, lease: Lease, attempts: number): Promise<void> {
    const error = new TaskFailedError(
      `${attempts === 1 ? 'A run' : `${attempts} runs`} of ${JSON.stringify(this.name)} for ${new Date(tickMs).toISOString()} broke off: the process died, was stopped, or lost its lease. The tick has failed.`,
      { key: this.#marks.lock },
    )
    if (await this.#settleUnder(lease, tickMs, 'failed'))
      await this.#tell(() => this.#marks.forgetBegins(tickMs, attempts))
    this.#parts.schedule.onError(error, { name: this.name, during: 'run' })
  }

  /** Says how the work went as soon as it is over; the job may stay taken for longer. */
  async #runNow(caller: {
    readonly resolve: (finished: FinishedRun) => void
    readonly reject: (error: unknown) => void
  }): Promise<void> {
    if (this.#stopping.signal.aborted) throw this.#closed()
    const startedMs = this.#course.nowMs
    await this.#underLock({}, async (lease) => {
      if (this.#stopping.signal.aborted) throw this.#closed()
      const { end, finished } = await this.#run(new Date(startedMs), lease, 1)
      if (end.result === 'ok') caller.resolve(finished)
      else caller.reject(end.error)
      if (end.result !== 'interrupted') await this.#stayTaken(startedMs, lease)
    })
  }

  async #run(
    scheduledAt: Date,
    lease: Lease,
    attempt: number,
  ): Promise<{ readonly end: RunEnd; readonly finished: FinishedRun }> {
    const { work, schedule, settings } = this.#parts
    const { clock } = schedule
    const going = new Run(scheduledAt, lease, { clock, maxRunMs: settings.maxRunMs })
    const startedAt = new Date(clock.wallMs())
    const startedMs = clock.monotonicMs()
    this.#runs.add(going)
    const end = await going.end(work, this.name, attempt)
    this.#runs.delete(going)
    going.close()
    const durationMs = Math.round(clock.monotonicMs() - startedMs)
    const { result } = end
    const run = { name: this.name, scheduledAt, startedAt, durationMs, result }
    const finished = end.result === 'ok' ? run : { ...run, error: end.error }
    this.#last = finished
    if (end.result === 'failed') schedule.onError(end.error, { name: this.name, during: 'run' })
    schedule.onRun(finished)
    return { end, finished }
  }

  /** The end of a run is not the end of its time, with `minHold`; and what came meanwhile overlapped with it. */
  async #stayTaken(startedMs: number, lease: Lease): Promise<void> {
    await this.#leaveOutOverlapped(startedMs, lease)
    // Not by `minHold`, which would count from each look of those who only find that the tick is settled.
    const leftMs = startedMs + this.#parts.settings.minHoldMs - this.#course.nowMs
    if (leftMs <= 0) return
    await paused(this.#parts.schedule.clock, leftMs, AbortSignal.any([this.#stopping.signal, lease.signal]))
  }

  /** What came while we ran. Only who ran knows that, so it is told to all, while the others still wait for the key. */
  async #leaveOutOverlapped(startedMs: number, lease: Lease): Promise<void> {
    const { overlap, minHoldMs } = this.#parts.settings
    const course = this.#course
    if (overlap === 'queue') return course.excuse()
    await this.#tell(async () => {
      for (const tick of course.between(startedMs, Math.max(course.nowMs, startedMs + minHoldMs))) {
        if (lease.remainingMs === 0 || this.#stopping.signal.aborted) return
        await this.#marks.settle(tick, 'skipped', this.#rememberMs(tick))
      }
    })
  }

  /**
   * Whether the store has heard of it. It is told again for as long as nobody else can have the job, because the next one who has it
   * would run the tick once more. Once at least: under a lease that `maxRun` has ended the store keeps the key until it is given back.
   */
  async #settleUnder(lease: Lease, tickMs: number, result: TickResult): Promise<boolean> {
    const { clock, onError } = this.#parts.schedule
    for (let failures = 1; ; failures += 1) {
      try {
        await this.#marks.settle(tickMs, result, this.#rememberMs(tickMs))
        return true
      } catch (error) {
        onError(error, { name: this.name, during: 'store' })
        const isAway =
          isHoldfastError(error, 'store-unavailable') || isHoldfastError(error, 'acquire-timeout')
        if (!isAway || lease.remainingMs === 0 || this.#stopping.signal.aborted) return false
        await paused(
          clock,
          backoffMs(ASKING_AGAIN, failures),
          AbortSignal.any([this.#stopping.signal, lease.signal]),
        )
      }
    }
  }

  /** Until nobody can take the tick for one that is still to be run, however wrong its clock; and until the next one is known. */
  #rememberMs(tickMs: number): number {
    const gapMs = (this.#ticks.next(tickMs) ?? tickMs) - tickMs
    return Math.min(gapMs + this.#parts.settings.windowMs + SKEW_MS, LONGEST_MS)
  }

  /** What is done is done, whether the store hears of it or not. */
  async #tell(telling: () => Promise<void>): Promise<void> {
    try {
      await telling()
    } catch (error) {
      this.#parts.schedule.onError(error, { name: this.name, during: 'store' })
    }
  }

  async #underLock<T>(wait: { readonly wait?: number }, work: (lease: Lease) => Promise<T>): Promise<T> {
    const { locks, settings } = this.#parts
    const { ttlMs, maxRunMs } = settings
    const hold = {
      ...wait,
      ...(ttlMs === undefined ? {} : { ttl: ttlMs }),
      maxHold: Math.min((maxRunMs ?? LONGEST_MS) + GRACE_MS, LONGEST_MS),
      renew: true,
      reentrant: false,
      minHold: 0,
      signal: this.#stopping.signal,
    }
    const done: T[] = []
    try {
      await locks.withLock(this.#marks.lock, hold, async (lease) => {
        done.push(await work(lease))
      })
    } catch (error) {
      // A lease that was lost has been judged already.
      if (done.length === 0) throw error
    }
    return done[0] as T
  }

  #newCourse(): Course {
    const { schedule, settings } = this.#parts
    return new Course(this.#ticks, schedule.clock, settings)
  }

  async #lastSettled(nowMs: number): Promise<ScheduleStatus['last']> {
    const latest = this.#ticks.last(nowMs)
    const previous = latest === undefined ? undefined : this.#ticks.last(latest - 1)
    for (const tick of [latest, previous]) {
      const settled = tick === undefined ? undefined : await this.#marks.settled(tick)
      if (tick === undefined || settled === undefined) continue
      const { owner, result } = settled
      return { scheduledAt: new Date(tick), endedAt: before(nowMs, settled), result, owner }
    }
    return undefined
  }

  #track<T>(promise: Promise<T>): Promise<T> {
    this.#going.add(promise)
    const forget = () => this.#going.delete(promise)
    promise.then(forget, forget)
    return promise
  }

  #closed(): ClosedError {
    return new ClosedError(`The scheduled job ${JSON.stringify(this.name)} is stopped.`, {
      key: this.#marks.lock,
    })
  }
}

/** Without jitter: all processes ask at the same moment anyway, at each tick. */
const ASKING_AGAIN: Backoff = { firstMs: 1000, longestMs: LONGEST_SLEEP_MS, jitter: 0 }

function before(nowMs: number, { sinceMs }: Sighting): Date {
  return new Date(nowMs - sinceMs)
}

/** By how much the clocks of the processes may differ. */
const SKEW_MS = 300_000
/** Of a tick whose processes die under it. */
const MOST_ATTEMPTS = 3
