import { onTestFinished } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import type { Clock, Locks } from '../../src/index.ts'
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
  /** Somebody sets its clock. */
  setClock(byMs: number): void
}

/** Fake time, one store, and as many processes as a test wants. */
export class Stage {
  readonly clock = new FakeClock()
  readonly shared: Store = memoryStore({ now: this.clock.storeTime })
  /** What ran, as `process tick`: the record that no scheduler has a hand in. */
  readonly record: string[] = []
  readonly #begunAt: number = this.clock.wallMs()

  constructor(at = '2027-01-15T08:00:10Z') {
    this.clock.jumpWall(Date.parse(at) - this.#begunAt)
  }

  get ticks(): string[] {
    return this.record.map((line) => line.split(' ')[1] ?? '')
  }

  member(name: string, { aheadMs = 0, ...options }: ScheduleOptions & { aheadMs?: number } = {}): Member {
    const { clock } = this
    let offsetMs = aheadMs
    const own: Clock = {
      monotonicMs: () => clock.monotonicMs(),
      wallMs: () => clock.wallMs() + offsetMs,
      startTimer: (delayMs, fire) => clock.startTimer(delayMs, fire),
    }
    const store = new ScriptedStore(this.shared)
    const { locks } = startProcess(store, clock)
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

  /** Work that takes as long as it is told, in fake time, and writes itself into the record when it begins. */
  work(member: Pick<Member, 'name'>, forMs = 0): (run: ScheduledRun) => Promise<void> {
    return async ({ scheduledAt, signal }) => {
      this.record.push(`${member.name} ${scheduledAt.toISOString()}`)
      if (forMs > 0) await this.pass(forMs, signal)
    }
  }

  /** Rejects with the reason of the signal when that aborts first. */
  pass(forMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.startTimer(forMs, resolve)
      signal?.addEventListener('abort', () => {
        timer.stop()
        reject(signal.reason)
      })
    })
  }

  /** Its connection is cut and its event loop stands still for ever, as far as the others can see. */
  async kill(member: Member): Promise<void> {
    member.store.always('lose request')
    await settled()
  }
}
