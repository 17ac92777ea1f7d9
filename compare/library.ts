/** A library as the comparison sees it: on the client that its own documentation shows, in the settings that it recommends. */
export interface Library {
  /** The name of its package on npm, and of what it uses where it offers several things: `etcd3 (lock)`. */
  readonly name: string
  /** What it locks with. A fault is tried on every library of its kinds. */
  readonly kind: Kind
  /** What differs from its defaults, and why. */
  readonly settings: string
  open(place: Place): Promise<Client>
}

/** What the file of a library exports. */
export interface Opener {
  open(place: Place, kind: Kind): Promise<Client>
}

export type Kind = 'redis' | 'redlock' | 'etcd' | 'memory'

/** Where the client connects to. */
export interface Place {
  /** Ports on 127.0.0.1: one Redis server or one etcd member, or several Redis servers. */
  readonly ports: readonly number[]
  /** The time to live of all locks of this client. Libraries without one ignore it. */
  readonly ttlMs: number
}

export interface Client {
  /** Resolves with `null` if the library says that the key was not free in time. Rejects with whatever else it says. */
  acquire(key: string, waitMs: number): Promise<Held | null>
  /**
   * Runs the work under the key, with the helper that the library offers for that, and gives it what tells of a lost
   * lock. Undefined: the library has no such helper.
   */
  readonly hold?: <T>(key: string, work: (lost: AbortSignal | undefined) => Promise<T>) => Promise<T>
  /** Takes several keys, in the order given. Undefined: the library cannot. */
  readonly acquireAll?: (keys: readonly string[]) => Promise<Held>
  /** Takes units of a semaphore; `null` if they were not free in time. Undefined: the library has no semaphore with units. */
  readonly acquireUnits?: (units: Units) => Promise<Held | null>
  close(): Promise<void>
}

export interface Units {
  readonly key: string
  readonly limit: number
  readonly count: number
  readonly waitMs: number
}

export interface Held {
  /** Aborts when the library says that the lock is lost. Undefined: it never says. */
  readonly lost: AbortSignal | undefined
  release(): Promise<void>
}
