import { exitCodeOf } from './exit-codes.ts'
import { onSignal } from './on-signal.ts'

/** A signal ended a wait: nothing is held. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
  readonly exitCode: number

  constructor(signal: NodeJS.Signals) {
    super(`interrupted by ${signal}`)
    this.exitCode = exitCodeOf(signal)
  }
}

/** Aborts when a person or a service manager ends this process, so that a wait can leave the queue. The second signal ends it at once. */
export function interruption(): AbortSignal {
  const ending = new AbortController()
  onSignal(['SIGINT', 'SIGTERM', 'SIGHUP'], (name) => {
    if (ending.signal.aborted) process.exit(exitCodeOf(name))
    ending.abort(new Interrupted(name))
  })
  return ending.signal
}
