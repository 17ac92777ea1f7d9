import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../machine-time.ts'
import { type Chronicle, type DemoEvent, type Fault, Stalled } from './chronicle.ts'
import type { Crew } from './crew.ts'
import type { HandOvers } from './hand-overs.ts'

export interface Direction {
  readonly workers: number
  readonly faultEveryMs: number
  readonly durationMs: number
  readonly ttlMs: number
  /** Ends the demo early. */
  readonly signal: AbortSignal
}

/** Who is directed, and what is seen of them. */
export interface Cast {
  readonly crew: Pick<Crew, 'hire' | 'pidOf' | 'signal' | 'stop' | 'proceed'>
  readonly chronicle: Chronicle
  readonly handOvers: HandOvers
}

/** Lets workers compete for the key, and does to its holder what happens to processes in production. */
export async function direct(cast: Cast, direction: Direction): Promise<void> {
  const { crew, chronicle } = cast
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
      await strike(FAULTS[nth] ?? 'kill', { ...cast, direction: { ...direction, signal } })
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

interface DemoStage extends Cast {
  readonly direction: Direction
}

/** Does `fault` to the holder in the middle of its work, waits for the take-over, and replaces the lost worker. */
async function strike(fault: Fault, { crew, chronicle, handOvers, direction }: DemoStage): Promise<void> {
  const { ttlMs, faultEveryMs, signal } = direction
  const expect = (what: string, wanted: (event: DemoEvent) => boolean) =>
    chronicle.next(what, wanted, { withinMs: 3 * ttlMs + PATIENCE_MS, signal })

  const nextAtWork = async (): Promise<number> => {
    const { worker } = await expect('a worker acquires the key', ({ tag }) => tag === 'acquired')
    await sleep(faultEveryMs * AT_WORK, undefined, { signal })
    return worker
  }
  let worker = await nextAtWork()
  // If this process stood still, the worker may have released the key meanwhile. Nobody would take over from that worker.
  while (handOvers.holder !== worker) worker = await nextAtWork()
  // Without a take-over if the worker had lost the key just before the strike.
  const tookOver = expect(
    `somebody takes over from worker ${worker}`,
    (event) =>
      (event.tag === 'took-over' && event.from === worker) ||
      (event.tag === 'acquired' && event.worker !== worker),
  )
  const struckAt = monotonicMs()
  chronicle.add({ tag: 'struck', atMs: struckAt, worker, fault, pid: crew.pidOf(worker) })
  if (fault === 'stop') crew.stop(worker)
  else crew.signal(worker, fault === 'kill' ? 'SIGKILL' : 'SIGTERM')
  const end = await tookOver
  if (fault !== 'stop') return crew.hire()
  // The worker released or lost the key just before it was stopped. So it has nothing to notice.
  if (end.tag !== 'took-over' || end.after !== 'stop') return crew.proceed(worker)

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
