import { setTimeout as sleep } from 'node:timers/promises'
import { isHoldfastError, type Lease } from '../../index.ts'
import type { Notes } from './note-events.ts'
import type { Registers } from './registers.ts'

/** What a lease and the term of a leader have in common. */
export interface Holding extends Pick<Lease, 'id' | 'fence' | 'assertHeld' | 'remainingMs'> {
  /** Aborts when the lease is lost. */
  readonly signal: AbortSignal
}

export interface HoldPlan extends Notes {
  readonly lastsMs: number
  /** Those of the key, for a holder that nobody else may hold beside. */
  readonly registers: Registers | undefined
  /** Ends the use early. */
  readonly until?: AbortSignal
}

/** Uses the lease as a careful program would, until the time is over or the lease is lost. Does not release it. */
export async function useLease(holding: Holding, plan: HoldPlan): Promise<void> {
  const { registers, lastsMs, history, now, until } = plan
  const { id, signal } = holding
  const tellLoss = () => history.add({ tag: 'lost', at: now(), id, reason: reasonOf(signal) })
  if (signal.aborted) return tellLoss()
  signal.addEventListener('abort', tellLoss)
  let nth = 0
  const write = (what: 'enter' | 'write', seen: ReturnType<Registers['look']>) => {
    nth += 1
    registers?.append({ id, nth, what, fence: `${holding.fence}`, ...seen })
  }

  const end = now() + lastsMs
  if (registers !== undefined) write('enter', registers.look())
  do {
    if (!isHeld(holding, plan)) return await untilTold(holding, plan)
    const seen = registers?.look()
    await sleep(Math.min(USE_MS, Math.max(1, end - now())))
    if (!isHeld(holding, plan)) return await untilTold(holding, plan)
    if (seen === undefined) continue
    write('write', seen)
    history.add({ tag: 'wrote', id, nth, held: holdsStill(holding) })
  } while (now() < end && until?.aborted !== true)
  // From here on the abort of the signal is no news.
  signal.removeEventListener('abort', tellLoss)
}

const USE_MS = 12

function isHeld(holding: Holding, { history, now }: Notes): boolean {
  // The clock is read first. If the process is stopped behind this line, `assertHeld` throws, or the lease was held before.
  const at = now()
  if (!holdsStill(holding)) {
    history.add({ tag: 'refused', at: now(), id: holding.id })
    return false
  }
  history.add({ tag: 'held', at, id: holding.id, leftMs: holding.remainingMs })
  return true
}

function holdsStill(holding: Holding): boolean {
  try {
    holding.assertHeld()
    return true
  } catch (error) {
    if (isHoldfastError(error, 'lease-lost')) return false
    throw error
  }
}

/** `assertHeld` has refused, and the signal has to abort, too. */
async function untilTold({ signal }: Holding, { until }: HoldPlan): Promise<void> {
  const end = performance.now() + LATEST_MS
  while (!signal.aborted && until?.aborted !== true && performance.now() < end) await sleep(5)
}

const LATEST_MS = 5000

function reasonOf({ reason }: AbortSignal): string {
  return isHoldfastError(reason, 'lease-lost') ? reason.reason : String(reason)
}
