import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../machine-time.ts'
import { programOf } from '../package.ts'
import { sendSignal, wakeLater } from '../wake-later.ts'
import type { Chronicle } from './chronicle.ts'
import { ASSIGNMENT, type Assignment, FREEZE, type WorkerEvent } from './worker-messages.ts'

/** The worker processes of a demo. A worker's number is never used twice. */
export class Crew {
  readonly #assignment: Omit<Assignment, 'worker'>
  readonly #chronicle: Chronicle
  readonly #processes = new Map<number, ChildProcess>()
  readonly #wakers = new Map<number, ChildProcess>()
  #hired = 0

  constructor(assignment: Omit<Assignment, 'worker'>, chronicle: Chronicle) {
    this.#assignment = assignment
    this.#chronicle = chronicle
  }

  hire(): void {
    this.#hired += 1
    const worker = this.#hired
    const assignment: Assignment = { ...this.#assignment, worker }
    // Not as an argument: every user of the machine can read arguments, and the store's URL may hold a password.
    const child = fork(PROGRAM, [String(process.pid)], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: { ...process.env, [ASSIGNMENT]: JSON.stringify(assignment) },
    })
    this.#processes.set(worker, child)
    child.on('message', (event: WorkerEvent) => this.#chronicle.add({ ...event, worker }))
    child.once('exit', (code, signal) => {
      this.#processes.delete(worker)
      this.#chronicle.add({ tag: 'gone', atMs: monotonicMs(), worker, how: signal ?? `exit code ${code}` })
    })
    this.#chronicle.add({ tag: 'hired', atMs: monotonicMs(), worker, pid: child.pid ?? 0 })
  }

  pidOf(worker: number): number {
    return this.#processes.get(worker)?.pid ?? 0
  }

  signal(worker: number, name: NodeJS.Signals): void {
    const child = this.#processes.get(worker)
    if (child !== undefined) sendSignal(name, child)
  }

  /** Stops a worker until `proceed`, or until this process has ended in whatever way. */
  stop(worker: number): void {
    this.#wakers.set(worker, wakeLater(this.pidOf(worker)))
    this.#processes.get(worker)?.send(FREEZE, () => {})
  }

  proceed(worker: number): void {
    this.signal(worker, 'SIGCONT')
    this.#wakers.get(worker)?.kill('SIGKILL')
  }

  /** All workers release what they hold and end. Those that have not ended after three seconds are killed. */
  async dismiss(): Promise<void> {
    const leaving = [...this.#processes.values()]
    const gone = Promise.all(leaving.map((child) => once(child, 'exit')))
    for (const child of leaving) {
      sendSignal('SIGTERM', child)
      sendSignal('SIGCONT', child)
    }
    const timeout = new AbortController()
    await Promise.race([gone, sleep(DISMISSAL_MS, undefined, { signal: timeout.signal }).catch(() => {})])
    timeout.abort()
    this.kill()
    await gone
  }

  /** Kills all workers at once, also while this process itself is ending. */
  kill(): void {
    for (const child of this.#processes.values()) sendSignal('SIGKILL', child)
  }
}

const DISMISSAL_MS = 3000
const PROGRAM = programOf('worker-process')
