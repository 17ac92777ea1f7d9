import type { WaitOptions } from '../../src/index.ts'

/** The orders of a test to a process, each with its reply. `lease` is the name that the test gave to the lease. */
export interface Orders {
  acquire(order: { lease: string; key: string; options?: WaitOptions }): { fence: bigint; id: string }
  release(order: { lease: string }): undefined
  /**
   * Blocks the event loop, then checks the lease in the very next statement. `said` is the code of the error, if there
   * is one.
   */
  block(order: { lease: string; forMs: number }): { said: string | undefined; timers: number }
  /** Blocks the event loop in the middle of `withLock`. `said` is the code of the error that it rejects with. */
  workBlocked(order: { key: string; options: WaitOptions; forMs: number }): { said: string | undefined }
  /** Writes under the lease's fence into a register that refuses lower ones. */
  write(order: { lease: string; register: string }): { outcome: 'written' | 'stale' }
  /**
   * Starts this many loops that take the key again and again and write into a journal while they hold it, until `stop`.
   */
  compete(order: { key: string; waiters: number; journal: string }): undefined
  stop(order: Record<string, never>): undefined
  /** Closes everything. Then nothing keeps the process alive. `abruptly`: the client does not wait for the server. */
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

/** A message of a process. It also reports lost leases, by their signals. */
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
