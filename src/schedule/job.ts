import { elapsedMs, type Instant } from '../base/instant.ts'
import { ClosedError } from '../errors.ts'
import { isHoldfastError, type Lease, type Locks } from '../index.ts'
import { paused } from './clock.ts'
import { LONGEST_MS, Marks, type Sighting, type TickResult } from './marks.ts'
import { type JobSettings, parseStopOptions, type ScheduleSettings, type StopOptions } from './options.ts'
import { type FinishedRun, GRACE_MS, Run, type RunEnd, type ScheduledRun } from './run.ts'
import { Ticks } from './ticks.ts'

/** What the store, and so every process, knows of a job at this moment. */
export interface ScheduleStatus {
  readonly next: Date | undefined
  /** Who runs it, and since when by this machine's clock. */
  readonly running: { readonly owner: Readonly<Record<string, unknown>>; readonly since: Date } | undefined
  /**
   * The last tick that somebody settled, among the last two. `skipped`: it overlapped with a run. The store remembers a tick until
   * the next one, and then for as long as it may be made up for and 5 minutes more.
   */
  readonly last:
    | {
        readonly scheduledAt: Date
        readonly endedAt: Date
        readonly result: TickResult
        readonly owner: Readonly<Record<string, unknown>>
      }
    | undefined
}

/** One job of a schedule. */
export interface ScheduledJob {
  readonly name: string
  readonly expression: string
  readonly timezone: string
  /** The next tick by this machine's clock; `undefined` when none is to come. */
  readonly next: Date | undefined
  /** The last run that ended in this process. */
  readonly last: FinishedRun | undefined
  /**
   * Runs the work here and now, as soon as no other run of this job is going on anywhere. In addition to the ticks: none is
   * replaced by it, and nobody takes it over should this process die.
   *
   * @throws what the work throws; {@link AcquireTimeoutError} when another run took longer than the `wait` of the locks;
   * {@link ClosedError} when the job is stopped; {@link StoreError}.
   */
  runNow(): Promise<FinishedRun>
  /** Asks the store. Costs a few requests. */
  status(): Promise<ScheduleStatus>
  /** As `stop()` of the schedule, for this job only. Its name may be added again afterwards. */
  stop(options?: StopOptions): Promise<void>
}

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
  /** Ticks up to here are none of our business any more. */
  #doneUntilMs = 0
  /** Since when the wall clock has gone on without a jump. All ticks from here to `#doneUntilMs` were attended to. */
  #livedFromMs = 0
  /** Ticks up to here came while we ran, and are not late. */
  #excusedUntilMs = 0
  #lookedAt: Instant = { wallMs: 0, monotonicMs: 0 }
  #knownAt: Instant | undefined
  #isStarted = false
  #last: FinishedRun | undefined

  /** @throws {InvalidArgumentError} when the expression or the zone is none. */
  constructor(parts: JobParts) {
    this.name = parts.name
    this.expression = parts.expression
    this.timezone = parts.settings.timezone
    this.#parts = parts
    this.#ticks = new Ticks(this.expression, this.timezone, parts.schedule.clock.wallMs())
    this.#marks = new Marks(parts.locks, parts.name, this.#stopping.signal)
    // Makes nothing, and refuses what no store keeps as it is.
    parts.locks.readWrite(this.#marks.lock)
  }

  get next(): Date | undefined {
    const tick = this.#ticks.next(Math.max(this.#nowMs, this.#doneUntilMs))
    return tick === undefined ? undefined : new Date(tick)
  }

  get last(): FinishedRun | undefined {
    return this.#last
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    this.#doneUntilMs = this.#livedFromMs = this.#nowMs
    this.#lookedAt = this.#look()
    void this.#track(this.#keepTime())
  }

  runNow(): Promise<FinishedRun> {
    return this.#track(this.#runNow())
  }

  async status(): Promise<ScheduleStatus> {
    const nowMs = this.#nowMs
    const running = await this.#marks.running()
    return {
      next: this.next,
      running: running === undefined ? undefined : { owner: running.owner, since: before(nowMs, running) },
      last: await this.#lastSettled(nowMs),
    }
  }

  async stop(options: StopOptions = {}): Promise<void> {
    const timeoutMs = parseStopOptions(options, this.#parts.schedule.stopTimeoutMs)
    const reason = this.#closed()
    this.#stopping.abort(reason)
    const idle = new AbortController()
    const ended = Promise.allSettled(this.#going).then(() => idle.abort())
    if (this.#runs.size > 0) await paused(this.#parts.schedule.clock, timeoutMs, idle.signal)
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
    const stopping = this.#stopping.signal
    for (let failures = 0; !stopping.aborted; ) {
      try {
        await this.#learnSince()
        const nowMs = this.#readClock()
        const tick = this.#due(nowMs)
        if (tick === undefined) await paused(schedule.clock, this.#sleepMs(nowMs), stopping)
        else {
          await this.#attend(tick)
          this.#doneUntilMs = Math.max(this.#doneUntilMs, tick)
        }
        failures = 0
      } catch (error) {
        if (stopping.aborted) return
        schedule.onError(error, { name: this.name, during: 'store' })
        if (isHoldfastError(error, 'closed')) return
        failures += 1
        await paused(schedule.clock, Math.min(500 * 2 ** failures, LONGEST_SLEEP_MS), stopping)
      }
    }
  }

  /** What is to be attended to at this moment, if anything. */
  #due(nowMs: number): number | undefined {
    const { missed, windowMs } = this.#parts.settings
    if (missed === 'all') {
      const tick = this.#ticks.next(Math.max(this.#doneUntilMs, nowMs - windowMs))
      return tick !== undefined && tick <= nowMs ? tick : undefined
    }
    const tick = this.#ticks.last(nowMs)
    return tick === undefined || tick <= this.#doneUntilMs || this.#isLate(tick, nowMs) ? undefined : tick
  }

  async #attend(tickMs: number): Promise<void> {
    if (await this.#marks.isSettled(tickMs)) return
    await this.#underLock({ wait: Number.POSITIVE_INFINITY }, async (lease) => {
      // Whoever we waited for may have settled it.
      if (await this.#marks.isSettled(tickMs)) return
      // Nobody was there in time. But a run that broke off is taken over however long it had lasted.
      if (this.#isLate(tickMs, this.#nowMs) && !(await this.#marks.hasBegun(tickMs))) return
      // It must be there still when the key of a process that died runs out.
      const rememberMs = this.#rememberMs(tickMs) + 2 * lease.toJSON().ttlMs
      const begin = await this.#marks.begin(tickMs, Math.min(rememberMs, LONGEST_MS))
      if (begin === undefined && this.#parts.settings.afterCrash === 'skip') return
      await this.#runTick(tickMs, lease, begin)
    })
  }

  async #runTick(tickMs: number, lease: Lease, begin: Lease | undefined): Promise<void> {
    let settling: Promise<void> | undefined
    const settle = (result: TickResult) => {
      settling ??= this.#settle(tickMs, result)
      return settling
    }
    const startedMs = this.#nowMs
    const end = await this.#run(new Date(tickMs), lease, {
      takenOver: begin === undefined,
      // Before the key is lost, so that those who wait for it do not take it for a crash.
      onOverdue: () => settle('failed'),
    })
    if (end.result === 'interrupted' || (end.result === 'failed' && end.isLost)) {
      // The next one who has the key sees that it began, and takes it over.
      if (begin !== undefined && begin.remainingMs > 0) begin.detach()
      return
    }
    await settle(end.result)
    await this.#tell(() => (begin === undefined ? this.#marks.forgetBegin(tickMs) : begin.release()))
    await this.#stayTaken(startedMs, lease)
  }

  async #runNow(): Promise<FinishedRun> {
    if (this.#stopping.signal.aborted) throw this.#closed()
    const startedMs = this.#nowMs
    let end: RunEnd | undefined
    await this.#underLock({}, async (lease) => {
      end = await this.#run(new Date(startedMs), lease, { takenOver: false, onOverdue: async () => {} })
      if (end.result !== 'interrupted') await this.#stayTaken(startedMs, lease)
    })
    if (end !== undefined && end.result !== 'ok') throw end.error
    return this.#last as FinishedRun
  }

  async #run(
    scheduledAt: Date,
    lease: Lease,
    { takenOver, onOverdue }: { readonly takenOver: boolean; readonly onOverdue: () => Promise<void> },
  ): Promise<RunEnd> {
    const { work, schedule, settings } = this.#parts
    const { clock } = schedule
    const run = new Run(scheduledAt, lease, { clock, atMostMs: settings.atMostMs, onOverdue })
    const startedAt = new Date(clock.wallMs())
    const startedMs = clock.monotonicMs()
    this.#runs.add(run)
    const end = await run.end(work, this.name, takenOver)
    this.#runs.delete(run)
    run.close()
    const durationMs = Math.round(clock.monotonicMs() - startedMs)
    const { result } = end
    const finished = { name: this.name, scheduledAt, startedAt, durationMs, result }
    this.#last = end.result === 'ok' ? finished : { ...finished, error: end.error }
    if (end.result === 'failed') schedule.onError(end.error, { name: this.name, during: 'run' })
    schedule.onRun(this.#last)
    return end
  }

  /** The end of a run is not the end of its time, with `atLeast`; and what came meanwhile overlapped with it. */
  async #stayTaken(startedMs: number, lease: Lease): Promise<void> {
    await this.#leaveOutOverlapped(startedMs, lease)
    // Not by `minHold`, which would count from each look of those who only find that the tick is settled.
    const leftMs = startedMs + this.#parts.settings.atLeastMs - this.#nowMs
    if (leftMs <= 0) return
    await paused(this.#parts.schedule.clock, leftMs, AbortSignal.any([this.#stopping.signal, lease.signal]))
  }

  /** What came while we ran. Only who ran knows that, so it is told to all, while the others still wait for the key. */
  async #leaveOutOverlapped(startedMs: number, lease: Lease): Promise<void> {
    const { overlap, missed, windowMs, atLeastMs } = this.#parts.settings
    const nowMs = this.#nowMs
    if (overlap === 'queue') {
      if (missed !== 'all') this.#excusedUntilMs = nowMs
      return
    }
    // Others would care about no earlier one.
    const fromMs = missed === 'all' ? nowMs - windowMs : (this.#ticks.last(nowMs) ?? nowMs) - 1
    const untilMs = Math.max(nowMs, startedMs + atLeastMs)
    await this.#tell(async () => {
      let tick = this.#ticks.next(Math.max(startedMs, fromMs))
      for (; tick !== undefined && tick <= untilMs; tick = this.#ticks.next(tick)) {
        if (lease.state !== 'held' || this.#stopping.signal.aborted) return
        await this.#settle(tick, 'skipped')
      }
    })
  }

  #settle(tickMs: number, result: TickResult): Promise<void> {
    return this.#tell(() => this.#marks.settle(tickMs, result, this.#rememberMs(tickMs)))
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

  async #underLock(wait: { readonly wait?: number }, work: (lease: Lease) => Promise<void>): Promise<void> {
    const { locks, settings } = this.#parts
    const { ttlMs, atMostMs } = settings
    const hold = {
      ...wait,
      ...(ttlMs === undefined ? {} : { ttl: ttlMs }),
      ...(atMostMs === undefined ? {} : { maxHold: Math.min(atMostMs + GRACE_MS, LONGEST_MS) }),
      renew: true,
      reentrant: false,
      minHold: 0,
      signal: this.#stopping.signal,
    }
    let isDone = false
    try {
      await locks.withLock(this.#marks.lock, hold, async (lease) => {
        await work(lease)
        isDone = true
      })
    } catch (error) {
      // A lease that was lost has been judged already.
      if (!isDone) throw error
    }
  }

  /** With a policy for missed ticks: since when this job is known at all. What came before was missed by nobody. */
  async #learnSince(): Promise<void> {
    if (this.#parts.settings.missed === 'skip') return
    if (this.#knownAt !== undefined && elapsedMs(this.#knownAt, this.#look()) < DAY_MS) return
    const knownForMs = await this.#marks.knownForMs(this.expression, this.timezone)
    if (this.#knownAt === undefined && knownForMs !== undefined) {
      this.#doneUntilMs = this.#livedFromMs = Math.min(this.#doneUntilMs, this.#nowMs - knownForMs)
    }
    this.#knownAt = this.#look()
  }

  #readClock(): number {
    const before = this.#lookedAt
    const now = this.#look()
    this.#lookedAt = now
    const jumpedMs = now.wallMs - before.wallMs - (now.monotonicMs - before.monotonicMs)
    if (jumpedMs > JUMP_MS) this.#livedFromMs = now.wallMs
    // Set back to where we have not been: these ticks are still to come. Where we have been, they were attended to.
    if (now.wallMs < this.#livedFromMs) this.#livedFromMs = this.#doneUntilMs = now.wallMs
    return now.wallMs
  }

  #look(): Instant {
    const { clock } = this.#parts.schedule
    return { wallMs: clock.wallMs(), monotonicMs: clock.monotonicMs() }
  }

  get #nowMs(): number {
    return this.#parts.schedule.clock.wallMs()
  }

  #isLate(tickMs: number, nowMs: number): boolean {
    return nowMs - tickMs > this.#parts.settings.windowMs && tickMs > this.#excusedUntilMs
  }

  #sleepMs(nowMs: number): number {
    const next = this.#ticks.next(Math.max(nowMs, this.#doneUntilMs)) ?? Number.POSITIVE_INFINITY
    return Math.max(1, Math.min(next - nowMs, LONGEST_SLEEP_MS))
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

/** By how much the clocks of the processes may differ. */
const SKEW_MS = 300_000
/** A clock that went so much further than time did was set, or its machine slept. */
const JUMP_MS = 60_000
/** Timers run on the monotonic clock; so a clock that was set, and a machine that slept, are seen after this long. */
const LONGEST_SLEEP_MS = 30_000
const DAY_MS = 86_400_000
