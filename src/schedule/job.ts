import { outsideOfCallers } from '../base/async-context.ts'
import { backoffMs } from '../base/backoff.ts'
import { elapsedMs, type Instant, now, paused } from '../base/clock.ts'
import { LONGEST_MS, show } from '../base/duration.ts'
import { nextRunNumber } from '../base/run-number.ts'
import { Ticks } from '../base/ticks.ts'
import { ClosedError, InvalidArgumentError } from '../errors.ts'
import { isHoldfastError, type Lease, type Locks, type StopOptions } from '../index.ts'
import { findBegunTick } from './begun-tick.ts'
import { Course } from './course.ts'
import { LateTicks } from './late-ticks.ts'
import { type Begin, Marks, type Sighting } from './marks.ts'
import { MissedTicks } from './missed-ticks.ts'
import { type JobSettings, parseStopOptions, type ScheduleSettings } from './options.ts'
import { type FinishedRun, GRACE_MS, Run, type RunEnd, type ScheduledRun } from './run.ts'
import { scheduleTopics } from './schedule-events.ts'
import type { ScheduledJob, ScheduleStatus } from './scheduled-job.ts'
import { ASKING_AGAIN, TickSettlement } from './tick-settlement.ts'

export interface JobParts {
  readonly locks: Locks
  readonly name: string
  readonly expression: string
  readonly work: (run: ScheduledRun) => unknown
  readonly schedule: ScheduleSettings
  readonly settings: JobSettings
  readonly onStop: () => void
}

/**
 * One job of a schedule, in this process. A tick goes through these steps:
 *
 * 1. Due: `Course` says so, by the clock of this process. A tick from before the start, or that this process was late for, is due
 *    if the store says that another process has begun it. So a run that breaks off later is taken over.
 * 2. Is it settled? If the store has its `done` mark, another process ran it.
 * 3. The lock of the job. The process waits for it, and then looks for the `done` mark once more. If the tick is late by now and no
 *    run of it has begun, it is left out. The lock of a process that died does not make a tick late.
 * 4. The begin mark, which outlives the lease. If the runs before have left too many of them, the tick is settled as failed.
 * 5. The run.
 * 6. Settled: the `done` mark, with a mark of its own for `failed`.
 * 7. Removed: the begin marks. Ticks that came during the run are settled as `skipped`. The lock is released.
 *
 * | what goes wrong | marks that stay | what becomes of the tick |
 * |---|---|---|
 * | the process ends before step 4 | none | the next holder of the lock runs it |
 * | the process dies or loses its lease in step 5 | begin | the next holder runs it as another attempt |
 * | the process is stopped in step 5 | begin, on the first attempt only | the next holder runs it again |
 * | the store does not confirm step 6 | begin | the same |
 * | the process dies in step 7 | done, begin | it is settled, and the begin mark runs out |
 */
export class Job implements ScheduledJob {
  readonly name: string
  readonly expression: string
  readonly timezone: string
  readonly #parts: JobParts
  readonly #ticks: Ticks
  readonly #marks: Marks
  readonly #settlement: TickSettlement
  readonly #lateTicks: LateTicks
  readonly #stopping = new AbortController()
  readonly #runs = new Set<Run>()
  /** All that `stop()` has to wait for. */
  readonly #going = new Set<Promise<unknown>>()
  #course: Course
  #isStarted = false
  /** The end of the grace of `stop()`, by the monotonic clock. */
  #graceUntilMs = Number.NEGATIVE_INFINITY
  #last: FinishedRun | undefined

  /** @throws {InvalidArgumentError} when the expression or the zone is none. */
  constructor(parts: JobParts) {
    this.name = parts.name
    this.expression = parts.expression
    this.timezone = parts.settings.timezone
    this.#parts = parts
    this.#ticks = new Ticks(this.expression, this.timezone)
    if (this.#ticks.next(parts.schedule.clock.wallMs()) === undefined) {
      throw new InvalidArgumentError(
        `Expected \`expression\` to match some time from now on, got ${show(this.expression)}.`,
      )
    }
    this.#course = this.#newCourse()
    this.#marks = new Marks(parts.locks, parts.name, this.#stopping.signal)
    this.#settlement = new TickSettlement({
      ...{ name: parts.name, settings: parts.settings, schedule: parts.schedule },
      ...{ marks: this.#marks, ticks: this.#ticks, stopping: this.#stopping.signal },
    })
    this.#lateTicks = new LateTicks({
      ...{ marks: this.#marks, settlement: this.#settlement },
      settings: parts.settings,
    })
    // Makes nothing, and refuses what no store keeps as it is.
    parts.locks.readWrite(this.#marks.lock)
  }

  get nextAt(): Date | undefined {
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
    outsideOfCallers(() => void this.#track(this.#keepTime()))
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
      nextAt: this.nextAt,
      running:
        running === undefined ? undefined : { owner: running.owner, startedAt: before(nowMs, running) },
      last: await this.#lastSettled(nowMs),
    }
  }

  async stop(options: StopOptions = {}): Promise<void> {
    const graceMs = parseStopOptions(options, this.#parts.schedule.graceMs)
    const reason = this.#closed()
    this.#graceUntilMs = this.#parts.schedule.clock.monotonicMs() + graceMs
    this.#stopping.abort(reason)
    const idle = new AbortController()
    const ended = Promise.allSettled(this.#going).then(() => idle.abort())
    if (this.#runs.size > 0) await paused(this.#parts.schedule.clock, graceMs, idle.signal)
    await Promise.all(Array.from(this.#runs, (run) => run.stop(reason)))
    await ended
    this.#parts.onStop()
  }

  /** Handles one tick after the other until the job is stopped. Never rejects. */
  async #keepTime(): Promise<void> {
    // The process has to stay alive between ticks, and while the work waits for something that does not keep it alive.
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
    const missedTicks = this.#missedTicks(course)
    const stopping = this.#stopping.signal
    for (let failures = 0; !stopping.aborted; ) {
      try {
        if (course.shouldLearn) course.learn(await this.#marks.knownForMs(this.expression, this.timezone))
        if (missedTicks.shouldLookBack) await missedTicks.lookBack()
        const passedMs = course.passedOver()
        if (passedMs !== undefined) course.searched(passedMs, await this.#begunTick(passedMs))
        const tick = course.due()
        if (tick !== undefined) {
          const isOpen = (await missedTicks.presentDuring(this.#attend(tick))) === 'left out'
          course.attended(tick, { isOpen })
          await missedTicks.notePresence()
        } else await paused(schedule.clock, Math.min(course.idleMs, await missedTicks.judge()), stopping)
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

  #begunTick(lastMs: number): Promise<number | undefined> {
    const [ticks, marks, stopping] = [this.#ticks, this.#marks, this.#stopping.signal]
    return findBegunTick({ ticks, marks, lastMs, nowMs: this.#course.nowMs, stopping })
  }

  /** `left out`: the tick is too late. Nothing tells whether it has run. */
  async #attend(tickMs: number): Promise<'left out' | undefined> {
    if (await this.#marks.isSettled(tickMs)) return undefined
    const course = this.#course
    return this.#underLock({ wait: Number.POSITIVE_INFINITY }, async (lease) => {
      // The earlier holder may have settled the tick while this process waited for the lock.
      if (await this.#marks.isSettled(tickMs)) {
        await this.#lateTicks.excuseAfter(tickMs, course)
        return undefined
      }
      // A tick that no process has begun in time is left out. A run that broke off is taken over, however late it is.
      const isLate = course.isOld(tickMs) && !(await this.#marks.hasBegun(tickMs))
      if (isLate && !(await this.#lateTicks.claim(tickMs, course, lease))) return 'left out'
      // If this process dies, the mark must outlive the lease, so that the next process sees that a run has begun.
      const rememberMs = Math.min(this.#settlement.rememberMs(tickMs) + 2 * lease.toJSON().ttlMs, LONGEST_MS)
      const most = this.#parts.settings.afterCrash === 'skip' ? 1 : MOST_ATTEMPTS
      let begin: Begin | undefined
      // No run has begun here, so no mark must say so.
      const takeBack = async () => {
        await begin?.lease.release()
        if (isLate) await this.#lateTicks.unclaim(tickMs)
      }
      try {
        begin = await this.#marks.begin(tickMs, { most, rememberMs })
        // The request took time: another process may have the job by now, and may have begun the run.
        lease.assertHeld()
      } catch (error) {
        await takeBack()
        throw error
      }
      if (begin === undefined) await this.#settlement.fail(tickMs, lease, most)
      // `stop()` waits only for runs that had begun, so none may begin now.
      else if (this.#stopping.signal.aborted) await takeBack()
      else await this.#runTick(tickMs, lease, begin)
      return undefined
    })
  }

  async #runTick(tickMs: number, lease: Lease, begin: Begin): Promise<void> {
    const started = now(this.#parts.schedule.clock)
    const { end } = await this.#run(new Date(tickMs), lease, begin.attempt)
    if (end.result === 'interrupted' || (end.result === 'failed' && end.isLost)) {
      // The mark stays, so the next holder sees that the run began, and takes it over. Interruptions by a stop count only
      // once, because a rolling deploy may interrupt several runs of one tick.
      const counts = end.result === 'failed' || begin.attempt === 1
      if (!counts) await this.#settlement.bestEffort(() => begin.lease.release())
      else if (begin.lease.remainingMs > 0) begin.lease.detach()
      return
    }
    if (!(await this.#settlement.settle(lease, tickMs, end.result))) {
      if (begin.lease.remainingMs > 0) begin.lease.detach()
      return
    }
    await this.#settlement.bestEffort(async () => {
      await begin.lease.release()
      await this.#marks.forgetBegins(tickMs, begin.attempt - 1)
    })
    await this.#stayTaken(started, lease)
  }

  /** Settles the caller's promise as soon as the work is over. The job may stay taken for longer. */
  async #runNow(caller: {
    readonly resolve: (finished: FinishedRun) => void
    readonly reject: (error: unknown) => void
  }): Promise<void> {
    if (this.#stopping.signal.aborted) throw this.#closed()
    const started = now(this.#parts.schedule.clock)
    await this.#underLock({}, async (lease) => {
      if (this.#stopping.signal.aborted) throw this.#closed()
      const { end, finished } = await this.#run(new Date(started.wallMs), lease, 1)
      if (end.result === 'ok') caller.resolve(finished)
      else caller.reject(end.error)
      if (end.result !== 'interrupted') await this.#stayTaken(started, lease)
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
    const facts = { name: this.name, scheduledAt, fence: lease.fence, run: nextRunNumber() }
    const told = (run: ScheduledRun): unknown =>
      scheduleTopics.begun.runAround(
        () => ({
          ...facts,
          attempt,
          lateMs: Math.max(0, startedAt.getTime() - scheduledAt.getTime()),
        }),
        () => work(run),
      )
    const end = await going.end(told, this.name, attempt)
    this.#runs.delete(going)
    going.close()
    const durationMs = Math.round(clock.monotonicMs() - startedMs)
    const { result } = end
    const run = { name: this.name, scheduledAt, startedAt, durationMs, result }
    const finished = end.result === 'ok' ? run : { ...run, error: end.error }
    this.#last = finished
    if (scheduleTopics.ended.isHeard) {
      const error = end.result === 'ok' ? undefined : end.error
      scheduleTopics.ended.tell({ ...facts, ranMs: durationMs, result, error })
    }
    if (end.result === 'failed') schedule.onError(end.error, { name: this.name, during: 'run' })
    schedule.onRun(finished)
    return { end, finished }
  }

  /** Settles the ticks that overlapped with the run, and keeps the job taken until `minHold` is over. */
  async #stayTaken(started: Instant, lease: Lease): Promise<void> {
    const { overlap, minHoldMs } = this.#parts.settings
    // With `queue` the last tick of this time runs, and only its end says which one that is.
    if (overlap === 'skip') await this.#settlement.skipOverlapped(this.#course, started, lease)
    // Not by the `minHold` of the lock: that would also hold the job after a process only finds that the tick is settled.
    const { clock } = this.#parts.schedule
    const leftMs = () => minHoldMs - elapsedMs(started, now(clock))
    if (leftMs() > 0) await paused(clock, leftMs(), AbortSignal.any([this.#stopping.signal, lease.signal]))
    // To leave the lock taken never shortens its lease. So the last moment of `minHold` is awaited, within the grace.
    const awaitedMs = Math.min(lease.remainingMs, this.#graceUntilMs - clock.monotonicMs())
    if (leftMs() > 0 && leftMs() <= awaitedMs) await paused(clock, leftMs(), lease.signal)
    if (overlap === 'queue') await this.#settlement.skipOverlapped(this.#course, started, lease)
    if (this.#stopping.signal.aborted && leftMs() > 0 && lease.remainingMs > 0)
      await this.#settlement.bestEffort(() => this.#marks.leaveTaken(lease, leftMs()))
  }

  async #underLock<T>(wait: { readonly wait?: number }, work: (lease: Lease) => Promise<T>): Promise<T> {
    const { locks, settings } = this.#parts
    const { ttlMs, maxRunMs } = settings
    const hold = {
      ...wait,
      maxWaiting: Number.POSITIVE_INFINITY,
      storeTimeout: LONGEST_MS,
      ...(ttlMs === undefined ? {} : { ttl: ttlMs }),
      maxHold: Math.min((maxRunMs ?? LONGEST_MS) + GRACE_MS + SETTLING_MS, LONGEST_MS),
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
      // `work` has returned, so it has dealt with the lost lease already.
      if (done.length === 0) throw error
    }
    return done[0] as T
  }

  #missedTicks(course: Course): MissedTicks {
    return new MissedTicks({
      ...{ name: this.name, expression: this.expression, timezone: this.timezone },
      ...{ ticks: this.#ticks, clock: this.#parts.schedule.clock },
      ...{ course, marks: this.#marks, settlement: this.#settlement },
    })
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

function before(nowMs: number, { sinceMs }: Sighting): Date {
  return new Date(nowMs - sinceMs)
}

/** How many runs of a tick may begin and not end: their processes died, for example. */
const MOST_ATTEMPTS = 3
/** How long the lease lasts beyond a run that is given up, so that its tick, and those that came meanwhile, are settled under it. */
const SETTLING_MS = 10_000
