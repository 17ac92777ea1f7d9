/** The environment variable with a worker's assignment, as JSON. */
export const ASSIGNMENT = 'HOLDFAST_DEMO_ASSIGNMENT'

/** The message to a worker that is to send itself SIGSTOP. */
export const FREEZE = 'freeze'

/** What a worker needs to know at its start. */
export interface Assignment {
  readonly worker: number
  readonly storeUrl: string
  readonly registerPath: string
  readonly key: string
  readonly ttlMs: number
  /** A shift takes this long, or up to twice as long. */
  readonly shortestShiftMs: number
}

/** An event that a worker reports, with a time of the clock that all processes share. */
export type WorkerEvent = { readonly atMs: number } & (
  | { readonly tag: 'trying' }
  | { readonly tag: 'acquired'; readonly fence: string }
  | { readonly tag: 'working'; readonly value: number }
  | { readonly tag: 'renewing'; readonly remainingMs: number }
  | { readonly tag: 'released'; readonly writes: number }
  | { readonly tag: 'lost'; readonly reason: string }
  /** A write with the fence of a lost lease, and whether it counted. */
  | { readonly tag: 'late-write'; readonly fence: string; readonly counted: boolean }
  | { readonly tag: 'failed'; readonly message: string }
)

/** Reports an event, at the current time unless `atMs` is given. */
export type Tell = (event: Timeless<WorkerEvent>, atMs?: number) => void

type Timeless<E> = E extends WorkerEvent ? Omit<E, 'atMs'> : never
