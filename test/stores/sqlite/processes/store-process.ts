import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import type {
  AcquireAnswer,
  EvictRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  Ticket,
} from '../../../../src/contract/store.ts'

/** Runs a script as a process of its own, under the same Node.js, until the test is over. */
export function startProcess(script: URL, ...args: string[]): ChildProcess {
  const child = fork(fileURLToPath(script), args, {
    execArgv: ['--import', 'tsx'],
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  return child
}

/** How a process ended, with all its output. */
export function ended(
  child: ChildProcess,
): Promise<{ code: number | null; signal: string | null; output: string }> {
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text) => (output += text))
  return new Promise((resolve) => {
    child.once('close', (code, signal) => resolve({ code, signal, output }))
  })
}

/** A store in another process, which the test asks from here. */
export class StoreProcess {
  readonly child: ChildProcess
  /** The ids of the tickets that were woken there, in order. */
  readonly woken: string[] = []
  /** The fences of the messages that were leases, by the ids of their tickets. */
  readonly granted = new Map<string, bigint>()
  readonly #answers = new Map<
    number,
    { resolve: (answer: never) => void; reject: (error: unknown) => void }
  >()
  #calls = 0

  private constructor(path: string) {
    this.child = startProcess(new URL('serve-store.ts', import.meta.url), path)
    this.child.on('message', (message: Message) => this.#take(message))
  }

  static async start(path: string): Promise<StoreProcess> {
    const started = new StoreProcess(path)
    await started.#call('listen')
    return started
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#call('acquire', ticket)
  }

  renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return this.#call('renew', tickets)
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#call('release', request)
  }

  evict(request: EvictRequest): Promise<readonly string[]> {
    return this.#call('evict', request)
  }

  /** Begins a transaction that writes and stops the process in the middle of it. */
  stopInTransaction(): void {
    this.#call('stopInTransaction').catch(() => {})
  }

  async kill(): Promise<void> {
    const gone = new Promise((resolve) => this.child.once('exit', resolve))
    this.child.kill('SIGKILL')
    await gone
  }

  #call<A>(verb: string, request?: unknown): Promise<A> {
    const number = ++this.#calls
    return new Promise<A>((resolve, reject) => {
      this.#answers.set(number, { resolve, reject })
      this.child.send({ number, verb, request })
    })
  }

  #take(message: Message): void {
    if ('woken' in message) {
      this.woken.push(message.woken)
      if (message.fence !== undefined) this.granted.set(message.woken, message.fence)
    } else if ('error' in message) this.#answers.get(message.number)?.reject(new Error(message.error))
    else this.#answers.get(message.number)?.resolve(message.answer as never)
  }
}

type Message =
  | { readonly woken: string; readonly fence: bigint | undefined }
  | { readonly number: number; readonly answer: unknown }
  | { readonly number: number; readonly error: string }
