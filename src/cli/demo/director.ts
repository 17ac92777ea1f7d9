import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../machine-time.ts'
import { type Chronicle, type DemoEvent, type Fault, Stalled } from './chronicle.ts'
import type { Crew } from './crew.ts'

export interface Direction {
  readonly workers: number
  readonly faultEveryMs: number
  readonly durationMs: number
  readonly ttlMs: number
  /** Ends the demo early. */
  readonly signal: AbortSignal
}

/** Lets workers compete for the key, and does to its holder what happens to processes in production. */
export async function direct(crew: Crew, chronicle: Chronicle, direction: Direction): Promise<void> {
  const { workers, faultEveryMs, durationMs } = direction
  const over = new AbortController()
  chronicle.listen((event) => {
    if (event.tag === 'failed') over.abort(new Stalled(`Worker ${event.worker} failed: ${event.message}`))
  })
  const signal = AbortSignal.any([direction.signal, over.signal])
  const startedAt = monotonicMs()
  const until = (afterMs: number) =>
    sleep(Math.max(0, startedAt + afterMs - monotonicMs()), undefined, { signal })
  try {
    for (let count = 0; count < workers; count += 1) crew.hire()
    let strikeAtMs = faultEveryMs
    for (let nth = 0; strikeAtMs < durationMs; nth += 1) {
      await until(strikeAtMs)
      await strike(FAULTS[nth] ?? 'kill', { crew, chronicle, direction: { ...direction, signal } })
      // A fault that waited for a slow store delays the next ones; there is no catching up.
      strikeAtMs = Math.max(strikeAtMs + faultEveryMs, monotonicMs() - startedAt)
    }
    await until(durationMs)
  } catch (error) {
    if (over.signal.aborted) throw over.signal.reason
    if (!direction.signal.aborted) throw error
  }
}

const FAULTS: readonly Fault[] = ['kill', 'stop', 'term']

interface DemoStage {
  readonly crew: Crew
  readonly chronicle: Chronicle
  readonly direction: Direction
}

/** Does `fault` to the holder in the middle of its work, waits for the take-over, and replaces the lost worker. */
async function strike(fault: Fault, { crew, chronicle, direction }: DemoStage): Promise<void> {
  const { ttlMs, faultEveryMs, signal } = direction
  const expect = (what: string, wanted: (event: DemoEvent) => boolean) =>
    chronicle.next(what, wanted, { withinMs: 3 * ttlMs + PATIENCE_MS, signal })

  const { worker } = await expect('a worker acquires the key', ({ tag }) => tag === 'acquired')
  await sleep(faultEveryMs * AT_WORK, undefined, { signal })
  const tookOver = expect(
    `somebody takes over from worker ${worker}`,
    (event) => event.tag === 'took-over' && event.from === worker,
  )
  const struckAt = monotonicMs()
  chronicle.add({ tag: 'struck', atMs: struckAt, worker, fault, pid: crew.pidOf(worker) })
  if (fault === 'stop') crew.stop(worker)
  else crew.signal(worker, fault === 'kill' ? 'SIGKILL' : 'SIGTERM')
  await tookOver
  if (fault !== 'stop') return crew.hire()

  await sleep(faultEveryMs * AT_WORK, undefined, { signal })
  const lateWrite = expect(
    `worker ${worker} notices that it was stopped`,
    (event) => event.tag === 'late-write' && event.worker === worker,
  )
  chronicle.add({ tag: 'continued', atMs: monotonicMs(), worker, stoppedMs: monotonicMs() - struckAt })
  crew.proceed(worker)
  await lateWrite
}

/** When a fault strikes, as a part of the time between two faults. A shift takes at least a quarter of that time. */
const AT_WORK = 0.1
const PATIENCE_MS = 20_000
