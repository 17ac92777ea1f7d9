/** Signals from a terminal, a service manager or a person, passed to the receiver of the current phase. */
export class Signals {
  #receive: (name: NodeJS.Signals) => void

  constructor(receive: (name: NodeJS.Signals) => void) {
    this.#receive = receive
    for (const name of FORWARDED) process.on(name, this.#on)
  }

  redirect(receive: (name: NodeJS.Signals) => void): void {
    this.#receive = receive
  }

  /** Ctrl-Z would stop the renewal; the deadline would then end the command for good. */
  refuseToStop(complain: () => void): void {
    process.on('SIGTSTP', complain)
  }

  readonly #on = (name: NodeJS.Signals): void => this.#receive(name)
}

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const
