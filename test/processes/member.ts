import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { ClientKind } from '../faults/scene.ts'
import { bundled } from '../servers/bundled.ts'
import { until } from '../servers/until.ts'
import type { Order, OrderMessage, ProcessMessage, Reply, Verb } from './orders.ts'

const PROGRAM = await bundled(new URL('member-process.ts', import.meta.url))
const ROOT = fileURLToPath(new URL('../../', import.meta.url))

export type Loss = Extract<ProcessMessage, { tag: 'lost' }>

/** A process of its own that takes and releases keys of one Redis server as the test orders. */
export class Member implements AsyncDisposable {
  readonly losses: Loss[] = []
  readonly #child: ChildProcess
  readonly #waiting = new Map<number, { resolve: (reply: never) => void; reject: (error: Error) => void }>()
  #orders = 0

  constructor(child: ChildProcess) {
    this.#child = child
    child.on('message', (message: ProcessMessage) => this.#hear(message))
    child.on('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('The process has ended'))
      this.#waiting.clear()
    })
  }

  /** The exit code of the process, or the name of the signal that ended it; undefined while it runs. */
  get ended(): number | NodeJS.Signals | undefined {
    return this.#child.exitCode ?? this.#child.signalCode ?? undefined
  }

  ask<V extends Verb>(verb: V, order: Order<V>): Promise<Reply<V>> {
    this.#orders += 1
    const message: OrderMessage = { number: this.#orders, verb, order }
    return new Promise((resolve, reject) => {
      this.#waiting.set(message.number, { resolve, reject })
      this.#child.send(message, (error) => {
        if (error !== null) reject(error)
      })
    })
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await until('the process has ended', () => this.ended !== undefined)
  }

  pause(): void {
    this.#child.kill('SIGSTOP')
  }

  resume(): void {
    this.#child.kill('SIGCONT')
  }

  /** Orders the process to close everything, and waits until it has ended by itself. */
  async end({ abruptly = false } = {}): Promise<number | NodeJS.Signals> {
    await this.ask('close', { abruptly })
    await until('the process has ended by itself', () => this.ended !== undefined)
    return this.ended as number | NodeJS.Signals
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.ended === undefined) await this.kill()
  }

  #hear(message: ProcessMessage): void {
    switch (message.tag) {
      case 'ready':
        return
      case 'lost':
        this.losses.push(message)
        return
      case 'reply':
        return this.#settle(message.number)?.resolve(message.reply as never)
      case 'failed':
        return this.#settle(message.number)?.reject(new Error(message.error))
      default:
        message satisfies never
    }
  }

  #settle(number: number) {
    const waiting = this.#waiting.get(number)
    this.#waiting.delete(number)
    return waiting
  }
}

/** Starts a process and resolves when it listens to orders. */
export async function startMember(url: string, kind: ClientKind = 'ioredis 5'): Promise<Member> {
  const child = fork(PROGRAM, [url, kind], {
    cwd: ROOT,
    execArgv: [],
    // This serialization keeps bigint as it is.
    serialization: 'advanced',
  })
  leftovers.add(child)
  child.once('exit', () => leftovers.delete(child))
  const member = new Member(child)
  try {
    await once(child, 'message', { signal: AbortSignal.timeout(120_000) })
    return member
  } catch (error) {
    await member.kill()
    throw new Error('The process did not start', { cause: error })
  }
}

// A test run that is aborted must not leave a process behind. A stopped one would never end by itself.
const leftovers = new Set<ChildProcess>()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const child of leftovers) child.kill('SIGKILL')
  })
}
