import type { HolderView, RoomView, WaiterView } from '../../../contract/store.ts'
import { HOLDER_STATES } from '../../answers.ts'

/**
 * `<expiresAt> <text>` of a lone holder, or the entries of the sorted set that `room.lua` describes: none if there is no key.
 * `?` for a key of another type.
 */
export type StoredRoom = string | readonly string[]

/**
 * The view of a room for people. Leaves out tickets that have expired. Undefined if there is nothing to see, or if the key
 * holds no room of this layout.
 */
export function roomView(key: string, content: StoredRoom, nowMs: number): RoomView | undefined {
  const entries = typeof content === 'string' ? [content] : content
  const [first = ''] = entries
  if (typeof content !== 'string' && !SUMMARY.test(first)) return undefined
  const holders: HolderView[] = []
  const queue: [arrival: number, waiter: WaiterView][] = []
  const groups = typeof content === 'string' ? NO_GROUPS : groupsOf(entries)
  let closedUntil = typeof content === 'string' ? 0 : Number(first.split(' ')[5])
  for (const entry of entries) {
    if (typeof content !== 'string' && !/^[eq]/.test(entry)) continue
    const ticket = parseTicket(entry)
    if (ticket === undefined) return undefined
    const { id, state, number, sinceUs, units, limit, lockDelayMs, owner } = ticket
    const until = state === 'w' && ticket.inbox.includes('/') ? (groups.get(ticket.inbox) ?? 0) : ticket.until
    if (until <= nowMs) {
      // No call has come since the ticket expired, but its lock-delay counts from the expiry.
      if (state === 'h') closedUntil = Math.max(closedUntil, until + lockDelayMs)
      continue
    }
    const facts = { id, units, limit, owner }
    if (state === 'w')
      queue.push([Number(number), { ...facts, waitedMs: nowMs - Math.floor(sinceUs / 1000) }])
    else {
      const times = { heldMs: nowMs - Math.floor(sinceUs / 1000), remainingMs: until - nowMs }
      holders.push({ ...facts, ...times, fence: BigInt(number), state: HOLDER_STATES[state] ?? 'held' })
    }
  }
  const closedMs = Math.max(0, closedUntil - nowMs)
  if (holders.length === 0 && queue.length === 0 && closedMs === 0) return undefined
  holders.sort((one, other) => (one.fence < other.fence ? -1 : 1))
  queue.sort(([one], [other]) => one - other)
  return { key, holders, queue: queue.map(([, waiter]) => waiter), closedMs }
}

/**
 * For a key that exists and holds no room of this layout: the number of the layout that it begins with, or an empty text if
 * another program wrote it. Undefined for a room of this layout, and where there is no key.
 */
export function foreignLayoutOf(content: StoredRoom): string | undefined {
  const entries = typeof content === 'string' ? [content] : content
  const [first] = entries
  if (first === undefined) return undefined
  const tickets = typeof content === 'string' ? entries : entries.filter((entry) => /^[eq]/.test(entry))
  const isRoom = typeof content === 'string' || SUMMARY.test(first)
  if (isRoom && tickets.every((entry) => parseTicket(entry) !== undefined)) return undefined
  // A text stands behind its expiry.
  const text = typeof content === 'string' ? first.replace(/^-?\d+ /, '') : first
  const layout = /^(\d{1,9}) /.exec(text)?.[1] ?? ''
  // A damaged room of this layout is nothing that an update could read.
  return layout === '2' ? '' : layout
}

/** Until when each group of waiters is remembered. */
function groupsOf(entries: readonly string[]): ReadonlyMap<string, number> {
  return new Map(
    entries.flatMap((entry) => {
      const [, name, until] = GROUP.exec(entry) ?? []
      return name === undefined ? [] : [[name, Number(until)] as const]
    }),
  )
}

const NO_GROUPS: ReadonlyMap<string, number> = new Map()

interface ParsedTicket {
  readonly id: string
  readonly state: string
  /** The fence of a holder, the number of arrival of a waiter. */
  readonly number: string
  readonly sinceUs: number
  readonly until: number
  readonly units: number
  readonly limit: number
  readonly lockDelayMs: number
  /** The inbox of its process, or the name of its group. */
  readonly inbox: string
  readonly owner: string
}

function parseTicket(entry: string): ParsedTicket | undefined {
  const parts = (LONE.exec(entry) ?? HOLDER.exec(entry) ?? WAITER.exec(entry))?.groups
  if (parts === undefined) return undefined
  const {
    id = '',
    state = 'h',
    number = '',
    inbox = '',
    owner = '',
    sinceUs,
    until,
    units,
    limit,
    lockDelay,
  } = parts
  return {
    id,
    state,
    number,
    sinceUs: Number(sinceUs),
    until: Number(until),
    units: Number(units),
    limit: Number(limit),
    lockDelayMs: Number(lockDelay),
    inbox,
    // Our own owners are never that long. Longer ones are left out, so that the view stays readable.
    owner: owner.length > LONGEST_OWNER ? '{}' : owner,
  }
}

const LONGEST_OWNER = 10_000

// The entries as `room.lua` describes them. Other texts that begin like a room are not shown.
const SUMMARY = /^2(?: \d{1,16}){7}$/
const FACTS = String.raw`(?<units>\d{1,16}) (?<limit>\d{1,16}) \d+ (?<lockDelay>\d{1,16}) \d+ (?<inbox>\S{1,100}) (?<owner>.*)$`
const LONE = new RegExp(
  String.raw`^(?<until>\d{1,16}) 2 t(?<id>[^\0]{1,1000})\0(?<number>\d{1,16}) (?<sinceUs>\d{1,16}) ${FACTS}`,
  's',
)
const HOLDER = new RegExp(
  String.raw`^e(?<until>\d{13})(?<id>[^\0]{1,1000})\0(?<state>[hol]) (?<number>\d{1,16}) (?<sinceUs>\d{1,16}) \d+ ${FACTS}`,
  's',
)
const WAITER = new RegExp(
  String.raw`^q(?<number>\d{13})(?<id>[^\0]{1,1000})\0(?<state>w) (?<until>\d{1,16}) (?<sinceUs>\d{1,16}) \d+ ${FACTS}`,
  's',
)
const GROUP = /^r([^\0]{1,100})\0(\d{1,16}) \d+ \d+ [01]$/
