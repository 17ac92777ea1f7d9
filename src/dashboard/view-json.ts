import type { Totals } from '../room-watch/room-history.ts'

/**
 * The views as the page receives them. The server builds them and the scripts of the page name these types, so that the two
 * agree. Times are the server's, in milliseconds since 1970; durations are as of `at`.
 */
export interface ViewJson {
  readonly site: SiteJson
  /** When the store was looked at; 0 before the first look. */
  readonly at: number
  readonly now: number
  readonly store:
    | { readonly tag: 'present'; readonly lookMs: number }
    | { readonly tag: 'away'; readonly sinceAt: number; readonly message: string }
  readonly isCut: boolean
  readonly totals: readonly Totals[]
}

export interface SiteJson {
  readonly title: string
  readonly allowEvict: boolean
  readonly hasJobs: boolean
}

/** One page of the list of keys, or of elections. */
export interface KeysJson {
  readonly matching: number
  readonly page: number
  readonly pages: number
  readonly rows: readonly (RowJson & ElectionJson)[]
}

export interface ContentionJson {
  readonly rows: readonly (RowJson & {
    readonly averageWaiting: number
    readonly mostWaiting: number
    readonly handOvers: number
  })[]
}

export interface RowJson {
  readonly key: string
  readonly holding: number
  readonly waiting: number
  readonly closedMs: number
  readonly longestWaitMs: number
  /** The first few. */
  readonly holders: readonly HolderJson[]
  readonly trend: readonly SampleJson[]
}

export interface ElectionJson {
  readonly isElection: boolean
  readonly watchers: number
}

export interface KeyJson extends ElectionJson {
  readonly key: string
  readonly closedMs: number
  readonly holding: number
  readonly waiting: number
  readonly holders: readonly HolderJson[]
  readonly queue: readonly WaiterJson[]
  readonly holds: readonly HoldJson[]
  readonly samples: readonly SampleJson[]
}

export interface HolderJson {
  readonly id: string
  readonly fence: string
  readonly mode: string
  readonly state: 'held' | 'offered' | 'leaving'
  readonly heldMs: number
  readonly remainingMs: number
  /** What a leader publishes. */
  readonly value: string | undefined
  readonly owner: OwnerJson
}

export interface WaiterJson {
  readonly id: string
  readonly mode: string
  readonly waitedMs: number
  readonly owner: OwnerJson
}

export interface HoldJson {
  readonly id: string
  readonly fence: string
  readonly mode: string
  readonly fromAt: number
  readonly untilAt: number | undefined
  readonly end: 'released' | 'expired' | 'unclear' | 'evicted' | undefined
  readonly reason: string | undefined
  readonly owner: OwnerJson
}

/** `text` alone where another program wrote the owner. */
export interface OwnerJson {
  readonly text?: string | undefined
  readonly host?: string | undefined
  readonly pid?: number | undefined
  readonly label?: string | undefined
}

/** From `at` until the next sample, so many held the key and so many waited. */
export type SampleJson = readonly [at: number, holding: number, waiting: number]
