import { onSignal } from '../on-signal.ts'

/** Signals from a terminal, a service manager or a person, passed to the receiver of the current phase. */
export class Signals {
  #receive: (name: NodeJS.Signals) => void

  constructor(receive: (name: NodeJS.Signals) => void) {
    this.#receive = receive
    onSignal(FORWARDED, (name) => this.#receive(name))
  }

  redirect(receive: (name: NodeJS.Signals) => void): void {
    this.#receive = receive
  }

  /** Ctrl-Z would stop the renewal; the deadline would then end the command for good. */
  refuseToStop(complain: () => void): void {
    process.on('SIGTSTP', complain)
  }
}

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
