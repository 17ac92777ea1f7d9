import { onTestFinished } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import type { Clock, Locks, LocksOptions } from '../../src/index.ts'
import {
  createSchedule,
  type FinishedRun,
  type Schedule,
  type ScheduledRun,
  type ScheduleOptions,
} from '../../src/schedule/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock, settled } from '../engine/fake-clock.ts'
import { startProcess } from '../engine/scene.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'

/** One process: its locks and its schedule, on a clock that may be wrong. */
export interface Member {
  readonly name: string
  readonly locks: Locks
  readonly schedule: Schedule
  readonly store: ScriptedStore
  readonly errors: unknown[]
  readonly finished: FinishedRun[]
  /** Sets the clock of the process forward or back. */
  setClock(byMs: number): void
}

interface MemberOptions {
  /** How far the clock of the process is ahead. */
  readonly aheadMs?: number
  /** The defaults of its locks. */
  readonly defaults?: LocksOptions
}

/** Fake time, one store, and as many processes as a test wants. */
export class Stage {
  readonly clock = new FakeClock()
  readonly shared: Store = memoryStore({ now: this.clock.storeTime })
  /** The runs, as `process tick`. The work writes this record, and no scheduler has a hand in it. */
  readonly record: string[] = []
  readonly #begunAt: number = this.clock.wallMs()

  constructor(at = '2027-01-15T08:00:10Z') {
    this.clock.jumpWall(Date.parse(at) - this.#begunAt)
  }

  get ticks(): string[] {
    return this.record.map((line) => line.split(' ')[1] ?? '')
  }

  member(
    name: string,
    { aheadMs = 0, defaults = {}, ...options }: ScheduleOptions & MemberOptions = {},
  ): Member {
    const { clock } = this
    let offsetMs = aheadMs
    const own: Clock = {
      monotonicMs: () => clock.monotonicMs(),
      wallMs: () => clock.wallMs() + offsetMs,
      startTimer: (delayMs, fire) => clock.startTimer(delayMs, fire),
    }
    const store = new ScriptedStore(this.shared)
    const { locks } = startProcess(store, clock, undefined, defaults)
    const errors: unknown[] = []
    const finished: FinishedRun[] = []
    const schedule = createSchedule(locks, {
      clock: own,
      onError: (error) => errors.push(error),
      onRun: (run) => finished.push(run),
      ...options,
    })
    onTestFinished(async () => {
      await clock.until(schedule.stop({ grace: 0 }))
    })
    return {
      name,
      locks,
      schedule,
      store,
      errors,
      finished,
      setClock: (byMs) => {
        offsetMs += byMs
      },
    }
  }

  /** Work that takes the given time, in fake time. It writes itself into the record when it begins. */
  work(member: Pick<Member, 'name'>, forMs = 0): (run: ScheduledRun) => Promise<void> {
    return async ({ scheduledAt, signal }) => {
      this.record.push(`${member.name} ${scheduledAt.toISOString()}`)
      if (forMs > 0) await this.pass(forMs, signal)
    }
  }

  /** Resolves after this time. If the signal aborts first, rejects with the signal's reason. */
  pass(forMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.startTimer(forMs, resolve)
      signal?.addEventListener('abort', () => {
        timer.stop()
        reject(signal.reason)
      })
    })
  }

  /** Kills a process, as far as the others can see: its connection is cut, and its event loop stands still for ever. */
  async kill(member: Member): Promise<void> {
    member.store.always('lose request')
    await settled()
  }
}
