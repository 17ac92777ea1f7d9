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
  /** What the looks cannot know: the store is a replica, say. */
  readonly caveats: readonly string[]
  readonly totals: readonly Totals[]
  readonly history: HistoryJson
}

/** What the dashboard remembers, over all keys. */
export interface HistoryJson {
  /** Since when it has looked, with or without gaps; `undefined` before the first look. */
  readonly fromAt: number | undefined
  /** How many holds were seen to expire, and how many were evicted here. The view of losses lists them. */
  readonly expired: number
  readonly evicted: number
}

export interface SiteJson {
  readonly title: string
  /** Only keys that begin with it are read. */
  readonly prefix: string
  readonly allowEvict: boolean
  readonly hasJobs: boolean
  readonly allowJobChanges: boolean
  /** How far the history goes back where the dashboard records, in milliseconds. */
  readonly recordMs: number | undefined
}

/** One page of the list of keys or of elections, or of the tree of keys. `matching` counts keys. */
export interface KeysJson {
  readonly matching: number
  readonly page: number
  readonly pages: number
  readonly rows: readonly (KeyRowJson | GroupRowJson)[]
}

export interface KeyRowJson extends RowJson, ElectionJson {
  readonly tag: 'key'
  /** How deep it stands in the tree; 0 in a list. */
  readonly depth: number
}

/** All keys of the tree that begin with `key`. */
export interface GroupRowJson {
  readonly tag: 'group'
  readonly key: string
  readonly depth: number
  readonly isOpen: boolean
  readonly keys: number
  /** How many of them have a holder that renews late. */
  readonly late: number
  readonly waiting: number
  readonly longestWaitMs: number
}

export interface ContentionJson {
  readonly rows: readonly (RowJson & {
    readonly averageWaiting: number
    readonly mostWaiting: number
    readonly handOvers: number
  })[]
}

/** One page of the holds that expired or were evicted, newest first. */
export interface LossesJson {
  readonly matching: number
  readonly page: number
  readonly pages: number
  readonly rows: readonly LossJson[]
}

export interface LossJson extends HoldJson {
  readonly key: string
  readonly untilAt: number
  /** When the process was heard of last, also after the loss; `undefined` where that is not known. */
  readonly heardAt: number | undefined
}

/** One page of the processes: those that hold or wait first, then those that are idle. */
export interface ProcessesJson {
  readonly matching: number
  readonly page: number
  readonly pages: number
  readonly rows: readonly ProcessJson[]
}

export interface ProcessJson {
  readonly owner: OwnerJson
  readonly state: 'present' | 'late' | 'idle'
  readonly holding: number
  readonly waiting: number
  /** The keys that it holds longest. */
  readonly holds: readonly ProcessKeyJson[]
  /** The keys for which it waits longest. */
  readonly waits: readonly ProcessKeyJson[]
  /** The last sign of life: a hold that began, a renewal, or a new place in a queue. */
  readonly heardAt: number
  readonly seenAt: number
  /** The last look that saw a ticket of it. */
  readonly lastSeenAt: number
}

export interface ProcessKeyJson {
  readonly key: string
  readonly durationMs: number
}

/** One page of the partitions, sorted by name. */
export interface PartitionsJson {
  readonly matching: number
  readonly page: number
  readonly pages: number
  readonly rows: readonly PartitionJson[]
}

/** A list of keys, or of numbers, that is divided among processes. */
export interface PartitionJson {
  /** The name of the group, which is unlike that of another list of keys with the same name. */
  readonly id: string
  readonly name: string
  readonly keys: number
  readonly members: number
  readonly held: number
  /** How many of the keys another process waits for. */
  readonly moving: number
  /** The members first. */
  readonly processes: readonly PartitionProcessJson[]
  /** The keys that nobody holds, as far as their names are known. */
  readonly free: readonly PartitionKeyJson[]
}

export interface PartitionProcessJson {
  readonly owner: OwnerJson
  /** `undefined`: the process is no member, or none any more. */
  readonly weight: number | undefined
  /** How many keys it is to have, by its weight; not rounded. */
  readonly due: number
  /** How many keys it cannot have, because its work on them has not ended. */
  readonly overdue: number
  /** How many of its keys it does not renew. */
  readonly late: number
  readonly keys: readonly PartitionKeyJson[]
}

/** A list, because there may be thousands. `to`: the place of the process that waits for it. `fence` is '' if nobody holds it. */
export type PartitionKeyJson = readonly [key: string, fence: string, fromAt: number, to?: number]

export interface RowJson {
  readonly key: string
  readonly holding: number
  readonly waiting: number
  readonly closedMs: number
  readonly longestWaitMs: number
  /** The fence of the last one that took the key; `undefined` if nobody holds it. */
  readonly lastFence: string | undefined
  /** The first few. */
  readonly holders: readonly HolderJson[]
  readonly trend: readonly SampleJson[]
}

export interface ElectionJson {
  readonly isElection: boolean
  /** How many observe the election. */
  readonly observers: number
}

export interface KeyJson extends ElectionJson, KeyHistoryJson {
  readonly key: string
  readonly closedMs: number
  readonly holding: number
  readonly waiting: number
  readonly holders: readonly HolderJson[]
  readonly queue: readonly WaiterJson[]
  /** The stretches of time in which the dashboard looked, oldest first. */
  readonly watched: readonly (readonly [fromAt: number, untilAt: number])[]
}

/** The newest holds and samples of a key, and the older holds that still last. */
export interface KeyHistoryJson {
  readonly holds: readonly HoldJson[]
  readonly samples: readonly SampleJson[]
  /** Since when all holds are among these; `undefined` if none is left out. */
  readonly holdsFromAt: number | undefined
  /** The same for the samples. */
  readonly samplesFromAt: number | undefined
}

export interface HolderJson {
  readonly id: string
  readonly fence: string
  readonly mode: string
  readonly state: 'held' | 'offered' | 'leaving'
  readonly heldMs: number
  readonly remainingMs: number
  /** `undefined` where looks could not tell it yet. */
  readonly ttlMs: number | undefined
  /** For how long it has not renewed; `undefined` while it is not late. */
  readonly lateMs: number | undefined
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
  readonly ttlMs: number | undefined
  readonly renewedAt: number | undefined
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
