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
  const hear = (signal: NodeJS.Signals) => {
    // Counted now, because what listens once is gone afterwards, while what it began goes on.
    const others = process.rawListeners(signal).filter((listener) => !ours.has(listener)).length
    const passOn = () => {
      ignore()
      if (Math.max(others, process.listenerCount(signal)) > steppingBack()) return
      // The first process of a container is not ended by a signal that nobody listens to.
      if (process.pid === 1) process.exit(128 + (KNOWN.get(signal) ?? 0))
      process.kill(process.pid, signal)
      // A signal that is listened to comes with the next turn of the event loop, which should not have ended by then.
      setTimeout(() => {}, 1000)
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

/**
 * How many listeners the package signal-exit has, which comes with many others. They do nothing as long as anybody else
 * listens, and clean up and end the process once they are alone: so a program that has them does not end by itself.
 */
function steppingBack(): number {
  const { __signal_exit_emitter__: third } = process as { __signal_exit_emitter__?: { count?: unknown } }
  const fourth = (globalThis as { [FOURTH]?: { count?: unknown } })[FOURTH]
  return [third, fourth].reduce((sum, emitter) => sum + Number(emitter?.count ?? 0), 0)
}

const FOURTH: unique symbol = Symbol.for('signal-exit emitter')

/** By their numbers, from which the exit code is made that a shell reports for them. */
const KNOWN: ReadonlyMap<unknown, number> = new Map<ShutdownSignal, number>([
  ['SIGTERM', 15],
  ['SIGINT', 2],
  ['SIGHUP', 1],
  ['SIGQUIT', 3],
  ['SIGBREAK', 21],
])

function checkSignals(signals: unknown): void {
  if (Array.isArray(signals) && signals.length > 0 && signals.every((signal) => KNOWN.has(signal))) return
  const got = Array.isArray(signals) ? signals.map(show).join(', ') || 'none' : show(signals)
  throw new InvalidArgumentError(
    `Expected \`signals\` to be a list of ${[...KNOWN.keys()].join(', ')}, got ${got}.`,
  )
}
