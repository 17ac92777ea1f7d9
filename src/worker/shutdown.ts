import { show } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'

/** What ends a process from outside, and what a process may do something about. */
export type ShutdownSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'SIGQUIT' | 'SIGBREAK'

/**
 * Stops at the first of the signals. More of them change nothing, as a terminal and a process manager often send one each,
 * and stopping is bounded. Afterwards the signal does what it would have done, unless the program listens to it itself.
 *
 * @returns stops listening.
 */
export function stopOnSignals(signals: readonly ShutdownSignal[], stop: () => Promise<void>): () => void {
  checkSignals(signals)
  const ignore = () => {
    ours.delete(hear)
    for (const signal of signals) process.off(signal, hear)
  }
  let begun = false
  const hear = (signal: NodeJS.Signals) => {
    if (begun) return
    begun = true
    // Now, because what listens once is gone afterwards, while what it began goes on.
    const isOursAlone = process.rawListeners(signal).every((listener) => ours.has(listener))
    const passOn = () => {
      ignore()
      if (isOursAlone && process.listenerCount(signal) === 0) process.kill(process.pid, signal)
    }
    stop().then(passOn, passOn)
  }
  ours.add(hear)
  // Before all others, which are still there then.
  for (const signal of signals) process.prependListener(signal, hear)
  return ignore
}

/** The listeners of all workers of this process: the last one to end lets the signal do its work. */
const ours = new Set<unknown>()

const KNOWN: ReadonlySet<unknown> = new Set<ShutdownSignal>([
  'SIGTERM',
  'SIGINT',
  'SIGHUP',
  'SIGQUIT',
  'SIGBREAK',
])

function checkSignals(signals: unknown): void {
  if (Array.isArray(signals) && signals.length > 0 && signals.every((signal) => KNOWN.has(signal))) return
  const got = Array.isArray(signals) ? signals.map(show).join(', ') || 'none' : show(signals)
  throw new InvalidArgumentError(`Expected \`signals\` to be a list of ${[...KNOWN].join(', ')}, got ${got}.`)
}
