/** The environment variable with a worker's duty, as JSON: others can read arguments, and a URL may hold a password. */
export const DUTY = 'HOLDFAST_TORTURE_DUTY'

/** The message of a worker that has a connection to the store. */
export const READY = 'ready'

/** The message of a worker that is about to stop itself. */
export const FREEZING = 'freezing'

/** What a worker process needs to know at its start. */
export interface Duty {
  readonly worker: number
  readonly slot: number
  readonly storeUrl: string
  readonly folder: string
  /** All keys begin with it. */
  readonly prefix: string
  readonly ttlMs: number
  readonly settleMs: number
  /** The mean pause between two tasks of a loop. */
  readonly paceMs: number
  /** How long there are faults. The history must not be full before. */
  readonly durationMs: number
  /** The start of the run on the clock of the machine. */
  readonly startedAt: number
  readonly seed: string
  readonly semaphores: boolean
}

/** A message to a worker. */
export type Order =
  /** It stops itself: stopped from outside it could be inside a transaction of SQLite, and block the file for all. */
  | { readonly tag: 'freeze' }
  | { readonly tag: 'clock'; readonly aheadMs: number }
  /** The faults are over: each process takes each key once more, and ends. */
  | { readonly tag: 'last-round' }

/** The keys of a run. Without semaphores nobody takes `permits`. */
export interface KeySet {
  readonly mutex: string
  readonly readWrite: string
  readonly permits: string
  readonly several: readonly [string, string, string]
  readonly leader: string
}

/** All of them in a row. */
export function takenKeys(
  prefix: string,
  { semaphores }: { readonly semaphores: boolean },
): readonly string[] {
  const { mutex, readWrite, permits, several, leader } = keysOf(prefix)
  return [mutex, readWrite, ...several, leader, ...(semaphores ? [permits] : [])]
}

export function keysOf(prefix: string): KeySet {
  return {
    mutex: `${prefix}mutex`,
    readWrite: `${prefix}read-write`,
    permits: `${prefix}permits`,
    several: [`${prefix}several-a`, `${prefix}several-b`, `${prefix}several-c`],
    leader: `${prefix}leader`,
  }
}
