import type { WaitOptions } from '../../src/index.ts'

/** What a test asks of a process, and what the process says to each. `lease` is the name that the test gave it. */
export interface Orders {
  acquire(order: { lease: string; key: string; options?: WaitOptions }): { fence: bigint; id: string }
  release(order: { lease: string }): undefined
  /** Stops the event loop, then asks the lease in the very next statement; `said` is the code of the error, if any. */
  block(order: { lease: string; forMs: number }): { said: string | undefined; timers: number }
  /** The same in the middle of `withLock`; `said` is the code of the error that it rejects with. */
  workBlocked(order: { key: string; options: WaitOptions; forMs: number }): { said: string | undefined }
  /** Writes under the lease's fence into a register that refuses older ones. */
  write(order: { lease: string; register: string }): { outcome: 'written' | 'stale' }
  /** Many that take the key again and again and write into a journal while they have it, until `stop`. */
  compete(order: { key: string; waiters: number; journal: string }): undefined
  stop(order: Record<string, never>): undefined
  /** Closes everything; then the process has no reason to go on. `abruptly`: the client does not wait for the server. */
  close(order: { abruptly: boolean }): undefined
}

export type Verb = keyof Orders
export type Order<V extends Verb> = Parameters<Orders[V]>[0]
export type Reply<V extends Verb> = ReturnType<Orders[V]>

export interface OrderMessage {
  readonly number: number
  readonly verb: Verb
  readonly order: Order<Verb>
}

/** Also unasked: which leases were lost, as their signals have told. */
export type ProcessMessage =
  | { readonly tag: 'ready' }
  | { readonly tag: 'reply'; readonly number: number; readonly reply: Reply<Verb> }
  | { readonly tag: 'failed'; readonly number: number; readonly error: string }
  | {
      readonly tag: 'lost'
      readonly lease: string
      readonly code: string
      readonly reason: string | undefined
    }
