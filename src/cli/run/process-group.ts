import { setTimeout as sleep } from 'node:timers/promises'

/** A command and the processes that it started. The group's id is the pid of the command. */
export class ProcessGroup {
  readonly pid: number

  constructor(pid: number) {
    this.pid = pid
  }

  /** `false` when the group is empty. */
  signal(name: NodeJS.Signals | 0): boolean {
    return this.#send(name) !== 'empty'
  }

  /**
   * Resolves when the group is empty, after a second at the latest: a stuck disk keeps a killed process. False if only processes of
   * other users are left then, which this one may not kill.
   */
  async gone(): Promise<boolean> {
    for (let waitedMs = 0; waitedMs < LONGEST_DEATH_MS && this.signal(0); waitedMs += 5) await sleep(5)
    return this.#send(0) !== 'foreign'
  }

  #send(name: NodeJS.Signals | 0): 'sent' | 'empty' | 'foreign' {
    try {
      process.kill(-this.pid, name)
      return 'sent'
    } catch (error) {
      // EPERM: the group exists and belongs to another user (sudo), so it cannot be signalled.
      return (error as NodeJS.ErrnoException).code === 'ESRCH' ? 'empty' : 'foreign'
    }
  }
}

const LONGEST_DEATH_MS = 1000
