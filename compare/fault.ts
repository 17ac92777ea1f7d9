import type { FaultProxy } from '../test/servers/tcp-proxy.ts'
import type { Client, Kind } from './library.ts'

/** One thing that goes wrong, and what a caller may expect of a library then. */
export interface Fault {
  /** What `--only` takes. */
  readonly id: string
  readonly title: string
  /** What happens, step by step, in a sentence or two. */
  readonly story: string
  /** What counts as ✓. */
  readonly expected: string
  readonly kinds: readonly Kind[]
  /** Resolves with `undefined` if the library does not offer what the fault is about. */
  run(stage: Stage): Promise<Seen | undefined>
}

/** What was seen of one library. */
export interface Seen {
  readonly isKept: boolean
  /** In a few words, with numbers. */
  readonly what: string
}

/** Where a fault is played: with servers of its own, a network in between, and nothing else on them. */
export interface Stage {
  readonly kind: Kind
  /** Between the clients of `open` and each server. Empty for locks in memory. */
  readonly proxies: readonly FaultProxy[]
  /** A client whose connections go through `proxies`. */
  open(ttlMs: number): Promise<Client>
  /** A client with a way of its own to the servers, which no fault cuts. In memory: the same as `open` gives. */
  openAside(ttlMs: number): Promise<Client>
  /** A client through proxies of its own. Its own server, by this number, is nearer than the others. */
  openNear(ttlMs: number, server: number): Promise<Client>
  /** How many requests all Redis servers get from their clients in this time. */
  countRequests(durationMs: number): Promise<number>
  /** Takes all leases of the etcd member away from their owners. */
  revokeLeases(): Promise<void>
}
