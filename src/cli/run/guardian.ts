import { type ChildProcess, spawn } from 'node:child_process'
import { programOf } from '../package.ts'
import type { Deadline } from './deadline.ts'
import { Enforcement } from './enforcement.ts'
import type { CommandLine, GuardianOrder, GuardianReport } from './guardian-messages.ts'
import { ProcessGroup } from './process-group.ts'

/** How a command ended. */
export type Ending =
  | Extract<GuardianReport, { tag: 'exited' | 'signalled' | 'not-launched' | 'too-late' | 'out-of-reach' }>
  /** The command was killed without waiting for the guardian's report. */
  | { readonly tag: 'unguarded' }
  /** The guardian died between the launch order and its report: the command may run, out of reach. */
  | { readonly tag: 'unknown' }
  /** The operating system did not start the guardian, so the command was not started. */
  | { readonly tag: 'no-guardian' }

/** The guardian process as `holdfast run` sees it. One guardian guards one command. */
export class Guardian {
  readonly ended: Promise<Ending>
  readonly #process: ChildProcess
  readonly #ready: Promise<void>
  #becomeReady: () => void = () => {}
  #resolve: (ending: Ending) => void = () => {}
  #deadline: Deadline | undefined
  #group: ProcessGroup | undefined
  /** Signals that came before the report that the command runs. The command may already have printed something by then. */
  readonly #early: NodeJS.Signals[] = []
  /** Kills at the deadline even when the guardian is stopped. SIGTERM before that is the guardian's part. */
  #enforcement: Enforcement | undefined
  #ending = false
  #over = false

  /** Starts the process. That takes as long as connecting to a store, so construct it before connecting. */
  constructor() {
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve
    })
    this.#ready = new Promise((resolve) => {
      this.#becomeReady = resolve
    })
    // A session of its own, so that neither Ctrl-C nor a closed terminal reaches it. The command inherits the streams.
    this.#process = spawn(process.execPath, [PROGRAM, String(process.pid)], {
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
      detached: true,
      env: { ...process.env, NODE_OPTIONS: '' },
    })
    this.#process.on('message', (report: GuardianReport) => this.#hear(report))
    this.#process.once('error', () => this.#gone(null))
    this.#process.once('exit', (code) => {
      if (!this.#process.connected) return this.#gone(code)
      // Its last messages, above all the pid, may still be in the channel; `disconnect` comes when they are read.
      this.#process.once('disconnect', () => {
        clearTimeout(limit)
        this.#gone(code)
      })
      // On Deno 2.9 it never comes if the guardian has left an order unread.
      const limit = setTimeout(() => this.#process.disconnect(), LAST_MESSAGES_MS)
    })
  }

  /** Whether the command got SIGTERM or SIGKILL, because the key is lost or about to be. */
  get ending(): boolean {
    return this.#ending
  }

  /** Resolves when the guardian can launch at once, or never will. Await it before taking the key: a start-up takes a while. */
  async ready(): Promise<void> {
    await Promise.race([this.#ready, this.ended])
  }

  /** Calls the listener if the guardian is gone before it was told to launch. */
  onGoneBefore(listener: () => void): void {
    void this.ended.then(({ tag }) => tag === 'no-guardian' && listener())
  }

  launch(command: CommandLine, options: { deadline: Deadline; graceMs: number }): Promise<Ending> {
    this.#deadline = options.deadline
    this.#order({ tag: 'launch', command, ...options })
    return this.ended
  }

  extend(deadline: Deadline): void {
    if (this.#ending) return
    this.#deadline = deadline
    this.#order({ tag: 'extend', deadline })
    this.#enforcement?.extend(deadline)
  }

  signal(name: NodeJS.Signals): void {
    if (this.#group === undefined) this.#early.push(name)
    else this.#group.signal(name)
  }

  /** Kills the command, as another may hold the key by now. */
  kill(): void {
    this.#ending = true
    if (this.#group !== undefined) void this.#kill(this.#group)
  }

  /** Ends the guardian, which kills the command if that still runs. */
  dismiss(): void {
    // A stopped guardian does not notice a closed channel. Without a command to guard it can be killed.
    if (this.#over || this.#deadline === undefined) this.#process.kill('SIGKILL')
    else if (this.#process.connected) this.#process.disconnect()
  }

  #order(order: GuardianOrder): void {
    // When the guardian is gone, `exit` reports it.
    if (this.#process.connected) this.#process.send(order, () => {})
  }

  #hear(report: GuardianReport): void {
    switch (report.tag) {
      case 'ready':
        return this.#becomeReady()
      case 'launched':
        return this.#watch(new ProcessGroup(report.pid))
      case 'ending':
        this.#ending = true
        return
      case 'exited':
      case 'signalled':
      case 'not-launched':
      case 'too-late':
      case 'out-of-reach':
        return this.#end(report)
      default:
        report satisfies never
    }
  }

  #watch(group: ProcessGroup): void {
    this.#group = group
    // The key was lost while the command was being started.
    if (this.#ending || this.#deadline === undefined) return this.kill()
    for (const name of this.#early) group.signal(name)
    this.#enforcement = new Enforcement(group, {
      deadline: this.#deadline,
      graceMs: 0,
      onEnding: () => this.kill(),
    })
  }

  #gone(exitCode: number | null): void {
    if (this.#deadline === undefined) this.#end({ tag: 'no-guardian' })
    else if (this.#group === undefined) {
      // The guardian exits with 0 only after it has killed what it started.
      this.#end({ tag: exitCode === 0 ? 'unguarded' : 'unknown' })
    } else void this.#kill(this.#group)
  }

  /** Does not wait for the guardian's report, as the guardian may be dead or stopped. */
  async #kill(group: ProcessGroup): Promise<void> {
    group.signal('SIGKILL')
    this.#end({ tag: (await group.gone()) ? 'unguarded' : 'out-of-reach' })
  }

  #end(ending: Ending): void {
    this.#over = true
    this.#enforcement?.stop()
    this.#group = undefined
    this.#resolve(ending)
  }
}

/** What a dead guardian has sent is in the channel already, so to read it takes one turn of the event loop. */
const LAST_MESSAGES_MS = 1000

const PROGRAM = programOf('guardian-process')
