import { setTimeout as sleep } from 'node:timers/promises'

/** A command and all that it started, named by the pid of the command. */
export class ProcessGroup {
  readonly pid: number

  constructor(pid: number) {
    this.pid = pid
  }

  /** False when nobody is left in it. */
  signal(name: NodeJS.Signals | 0): boolean {
    try {
      process.kill(-this.pid, name)
      return true
    } catch (error) {
      // EPERM: somebody is there, and it is another user's (sudo). There is nothing that we could do.
      return (error as NodeJS.ErrnoException).code !== 'ESRCH'
    }
  }

  /** Until the kernel has taken them all away, but for a bounded time: a stuck disk keeps a killed process. */
  async gone(): Promise<void> {
    for (let waitedMs = 0; waitedMs < LONGEST_DEATH_MS && this.signal(0); waitedMs += 5) await sleep(5)
  }
}

const LONGEST_DEATH_MS = 1000
