import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { programOf } from '../package.ts'
import { sendSignal, wakeLater } from '../wake-later.ts'
import { DUTY, type Duty, type Order } from './assignment.ts'
import type { ProxiedUrl } from './proxied-url.ts'
import { type Cut, CuttableProxy } from './proxy.ts'
import type { NemesisRecord } from './record.ts'

export interface WorkforceOptions {
  /** What all workers have in common. */
  readonly duty: Omit<Duty, 'worker' | 'slot'>
  /** `undefined`: no proxy can stand before the store. */
  readonly proxied: ProxiedUrl | undefined
  readonly now: () => number
  readonly tell: (record: NemesisRecord) => void
  /** A worker has ended by itself, before it was told to, or in another way. `signal`: the one that has ended it. */
  readonly onFailure: (text: string, signal?: NodeJS.Signals | null) => void
}

/** The processes of a run. Each has a slot with proxies of its own. A killed worker is replaced by one with a new number. */
export class Workforce {
  readonly #options: WorkforceOptions
  readonly #slots: Slot[] = []
  readonly #killed = new WeakSet<ChildProcess>()
  #hired = 0
  #isLastRound = false

  constructor(options: WorkforceOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#slots.length
  }

  /** Resolves when all of them have a connection to the store. */
  async start(count: number): Promise<void> {
    const { proxied } = this.#options
    for (let slot = 0; slot < count; slot += 1) {
      const proxies = await Promise.all((proxied?.servers ?? []).map((server) => CuttableProxy.start(server)))
      this.#slots.push({ proxies, child: undefined, waker: undefined })
      this.hire(slot)
    }
    const children = this.#slots.flatMap(({ child }) => (child === undefined ? [] : [child]))
    // A process that has ended, or that could not be started, is not waited for: its failure is told.
    await Promise.allSettled(
      children.map((child) => Promise.race([once(child, 'message'), once(child, 'exit')])),
    )
  }

  hire(slot: number): void {
    const place = this.#place(slot)
    const { duty, proxied, now, tell, onFailure } = this.#options
    this.#hired += 1
    const worker = this.#hired
    const storeUrl = proxied?.through(place.proxies.map(({ port }) => port)) ?? duty.storeUrl
    const child = fork(PROGRAM, [String(process.pid)], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { ...process.env, [DUTY]: JSON.stringify({ ...duty, storeUrl, worker, slot } satisfies Duty) },
    })
    place.child = child
    let complaint = ''
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(-MOST_TEXT)
    })
    tell({ tag: 'hired', at: now(), worker, slot })
    child.once('error', ({ message }) => {
      // No `exit` follows.
      if (child.pid === undefined && place.child === child) place.child = undefined
      onFailure(`process ${worker} failed: ${message}`)
    })
    child.once('exit', (code, signal) => {
      tell({ tag: 'gone', at: now(), worker, how: signal ?? `exit code ${code}` })
      if (place.child === child) place.child = undefined
      // Windows has no signals: a kill there ends a process with an exit code.
      const wasKilled = signal === 'SIGKILL' || process.platform === 'win32'
      if (wasKilled && this.#killed.has(child)) return
      if (this.#isLastRound && code === 0) return
      const how = signal === null ? `with exit code ${code}` : `by ${signal}`
      onFailure(`process ${worker} ended ${how}${complaint === '' ? '' : `: ${complaint.trim()}`}`, signal)
    })
  }

  async kill(slot: number): Promise<void> {
    const { child } = this.#place(slot)
    if (child === undefined) return
    const gone = once(child, 'exit')
    this.#kill(child)
    await gone
  }

  /** Until `proceed`. `gently`: the worker stops itself, between two steps of its program. */
  async stop(slot: number, { gently }: { readonly gently: boolean }): Promise<void> {
    const place = this.#place(slot)
    const { child } = place
    if (child?.pid === undefined) return
    place.waker = wakeLater(child.pid)
    if (!gently) return sendSignal('SIGSTOP', child)
    const limit = AbortSignal.timeout(LONGEST_FREEZING_MS)
    const frozen = once(child, 'message', { signal: limit })
    this.#order(slot, { tag: 'freeze' })
    await Promise.race([frozen, once(child, 'exit', { signal: limit })]).catch(() => {})
  }

  proceed(slot: number): void {
    const place = this.#place(slot)
    const { child } = place
    if (child !== undefined) {
      sendSignal('SIGCONT', child)
      // It may not have stopped yet: it says so a moment before.
      setTimeout(() => sendSignal('SIGCONT', child), 100).unref()
    }
    place.waker?.kill('SIGKILL')
    place.waker = undefined
  }

  cut(slot: number, how: Cut): void {
    for (const proxy of this.#place(slot).proxies) proxy.cut(how)
  }

  mend(slot: number): void {
    for (const proxy of this.#place(slot).proxies) proxy.mend()
  }

  setClock(slot: number, aheadMs: number): void {
    this.#order(slot, { tag: 'clock', aheadMs })
  }

  /** All workers take each key once more, and end. Resolves with those that did not end by themselves. */
  async lastRound(withinMs: number): Promise<number> {
    const left = this.#slots.flatMap(({ child }) => (child === undefined ? [] : [child]))
    const gone = Promise.all(left.map((child) => once(child, 'exit')))
    this.#isLastRound = true
    for (const slot of this.#slots.keys()) this.#order(slot, { tag: 'last-round' })
    // A process that has heard of its stop only now must not stay stopped.
    const goOn = setInterval(() => {
      for (const child of left) sendSignal('SIGCONT', child)
    }, 500)
    const timeout = new AbortController()
    await Promise.race([gone, sleep(withinMs, undefined, { signal: timeout.signal }).catch(() => {})])
    timeout.abort()
    clearInterval(goOn)
    const stuck = left.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null).length
    this.killAll()
    await gone
    return stuck
  }

  /** What is left of the processes is killed. */
  close(): void {
    this.killAll()
    for (const { proxies } of this.#slots) for (const proxy of proxies) proxy.close()
  }

  /** At once, also while this process itself is ending. */
  killAll(): void {
    for (const { child, waker } of this.#slots) {
      if (child !== undefined) this.#kill(child)
      waker?.kill('SIGKILL')
    }
  }

  #kill(child: ChildProcess): void {
    this.#killed.add(child)
    sendSignal('SIGKILL', child)
  }

  #order(slot: number, order: Order): void {
    this.#place(slot).child?.send(order, () => {})
  }

  #place(slot: number): Slot {
    const place = this.#slots[slot]
    if (place === undefined) throw new RangeError(`Expected a slot below ${this.#slots.length}, got ${slot}`)
    return place
  }
}

interface Slot {
  readonly proxies: readonly CuttableProxy[]
  child: ChildProcess | undefined
  waker: ChildProcess | undefined
}

const MOST_TEXT = 2000
/** The nemesis goes on after that. */
const LONGEST_FREEZING_MS = 5000
const PROGRAM = programOf('torture-process')
