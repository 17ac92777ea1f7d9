import { show } from '../base/duration.ts'
import { processWide } from '../base/process-wide.ts'
import { InvalidArgumentError } from '../errors.ts'

/** The signals that end a process and that it can listen to. */
export type ShutdownSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'SIGQUIT' | 'SIGBREAK'

/**
 * Calls `stop` at the first of the signals. Further ones change nothing, because a terminal and a process manager often send one
 * each, and `stop` is bounded. Afterwards the signal ends the process, unless the program listens to it itself.
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
    // Counted now, because a `once` listener is gone afterwards, although the work that it began goes on.
    const others = process.rawListeners(signal).filter((listener) => !ours.has(listener)).length
    const passOn = () => {
      ignore()
      if (Math.max(others, process.listenerCount(signal)) > steppingBack()) return
      // Linux does not end the first process of a container by a signal without a listener.
      if (process.pid === 1) process.exit(128 + (KNOWN.get(signal) ?? 0))
      process.kill(process.pid, signal)
      // A signal that has listeners arrives in the next turn of the event loop. The timer keeps the loop alive until then.
      setTimeout(() => {}, 1000)
    }
    stop().then(passOn, passOn)
  }
  ours.add(hear)
  // Before all other listeners, so that it counts the `once` listeners as well.
  for (const signal of signals) process.prependListener(signal, hear)
  return ignore
}

/** The listeners of all workers of this process: the last one to end lets the signal do its work. */
const ours = processWide('listeners of workers', () => new Set<unknown>())

/**
 * How many listeners the package signal-exit has; many packages depend on it. Its listeners do nothing while there are other
 * listeners. Once they are alone, they clean up and end the process. So they must not count as the program's own.
 */
function steppingBack(): number {
  const { __signal_exit_emitter__: third } = process as { __signal_exit_emitter__?: { count?: unknown } }
  const fourth = (globalThis as { [FOURTH]?: { count?: unknown } })[FOURTH]
  return [third, fourth].reduce((sum, emitter) => sum + Number(emitter?.count ?? 0), 0)
}

const FOURTH: unique symbol = Symbol.for('signal-exit emitter')

/** Signals with their numbers, because an exit code for a signal is 128 plus its number. */
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
