import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Deadline } from './deadline.ts'
import { Enforcement } from './enforcement.ts'
import type { CommandLine, GuardianOrder, GuardianReport } from './guardian-messages.ts'
import { ProcessGroup } from './process-group.ts'

/** How a command came to its end. */
export type Ending =
  | Extract<GuardianReport, { tag: 'exited' | 'signalled' | 'not-launched' | 'too-late' }>
  /** The command was killed without waiting for what the guardian says of it. */
  | { readonly tag: 'unguarded' }
  /** The guardian died between its order to start the command and its report: the command may run, out of our reach. */
  | { readonly tag: 'unknown' }
  /** The operating system did not start the guardian, so the command was not started. */
  | { readonly tag: 'no-guardian' }

/** This side of the guardian process. One guards one command. */
export class Guardian {
  readonly ended: Promise<Ending>
  readonly #process: ChildProcess
  readonly #ready: Promise<void>
  #becomeReady: () => void = () => {}
  #resolve: (ending: Ending) => void = () => {}
  #deadline: Deadline | undefined
  #group: ProcessGroup | undefined
  /** Signals that came before we heard that the command runs, which may be after its first words. */
  readonly #early: NodeJS.Signals[] = []
  /** Kills when the guardian itself is stopped; it does not ask before, which is the guardian's part. */
  #enforcement: Enforcement | undefined
  #ending = false
  #over = false

  /** Starts the process, which takes as long as connecting to a store does: start it before that. */
  constructor() {
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve
    })
    this.#ready = new Promise((resolve) => {
      this.#becomeReady = resolve
    })
    // A session of its own, so that neither Ctrl-C nor a closed terminal reaches it. It hands the streams on.
    this.#process = spawn(process.execPath, [PROGRAM], {
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
      detached: true,
      env: { ...process.env, NODE_OPTIONS: '' },
    })
    this.#process.on('message', (report: GuardianReport) => this.#hear(report))
    this.#process.once('error', () => this.#gone(null))
    this.#process.once('exit', (code) => {
      const gone = () => this.#gone(code)
      // Its last words, the pid above all, may still be in the channel: it ends only when they are read.
      if (this.#process.connected) this.#process.once('disconnect', gone)
      else gone()
    })
  }

  /** Whether the command was told to end, or killed, because the key is lost or about to be. */
  get ending(): boolean {
    return this.#ending
  }

  /** Resolves when it can launch at once, or never will: before the key is taken, so that nobody waits for a start-up. */
  async ready(): Promise<void> {
    await Promise.race([this.#ready, this.ended])
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

  /** Kills the command: others may hold the key by now. */
  kill(): void {
    this.#ending = true
    if (this.#group !== undefined) void this.#kill(this.#group)
  }

  /** Ends the guardian. If the command still runs, the guardian takes it along. */
  dismiss(): void {
    // A stopped process hears nothing of a closed channel, but it can be killed when there is nothing to guard.
    if (this.#over || this.#deadline === undefined) this.#process.kill('SIGKILL')
    else if (this.#process.connected) this.#process.disconnect()
  }

  #order(order: GuardianOrder): void {
    // When it is gone already, `exit` says so.
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
        return this.#end(report)
      default:
        report satisfies never
    }
  }

  #watch(group: ProcessGroup): void {
    this.#group = group
    // The loss was noticed while the command was being started.
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
      // It exits by itself only after it has killed what it started.
      this.#end({ tag: exitCode === 0 ? 'unguarded' : 'unknown' })
    } else void this.#kill(this.#group)
  }

  /** Does not rely on the guardian's report: it may be dead or stopped. */
  async #kill(group: ProcessGroup): Promise<void> {
    group.signal('SIGKILL')
    await group.gone()
    this.#end({ tag: 'unguarded' })
  }

  #end(ending: Ending): void {
    this.#over = true
    this.#enforcement?.stop()
    this.#group = undefined
    this.#resolve(ending)
  }
}

const PROGRAM = fileURLToPath(new URL('./guardian-process.js', import.meta.url))
