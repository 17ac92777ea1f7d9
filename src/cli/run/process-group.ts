import { readdirSync, readFileSync } from 'node:fs'
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

  /**
   * Resolves when no process of the group runs any more, or `isOver` says so. Resolves early with `foreign` if only processes are left that this
   * one may not signal.
   */
  async ended(isOver: () => boolean): Promise<'ended' | 'foreign'> {
    for (;;) {
      const answer = this.#send(0)
      if (answer === 'foreign') return answer
      if (answer === 'empty' || isOver() || !this.#hasLiving()) return 'ended'
      await sleep(LOOK_MS)
    }
  }

  /** A process that has ended stays in the group until its parent asks for it, and in a container that may be never. */
  #hasLiving(): boolean {
    try {
      return readdirSync('/proc').some((name) => /^\d+$/.test(name) && this.#isLiving(name))
    } catch {
      // Only Linux has /proc.
      return true
    }
  }

  #isLiving(pid: string): boolean {
    try {
      // The name of the program comes before, and may have spaces and parentheses.
      const [state, , group] =
        readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ').at(-1)?.split(' ') ?? []
      return group === String(this.pid) && state !== 'Z' && state !== 'X'
    } catch {
      return false
    }
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
const LOOK_MS = 50
