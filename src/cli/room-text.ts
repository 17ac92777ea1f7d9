import { type HolderView, type RoomView, UNLIMITED, type WaiterView } from '../index.ts'
import { age, plain } from './text.ts'

type Ticket = HolderView | WaiterView

export function modeOf({ units, limit }: Ticket): string {
  if (limit === 1) return 'mutex'
  return limit === UNLIMITED ? 'shared' : `${units} of ${limit}`
}

/** `host:pid (label)`, or the text as it is when a process that is none of ours wrote it. */
export function ownerOf({ owner }: Ticket): string {
  const facts = factsOf(owner)
  if (facts === undefined) return plain(owner)
  const label = facts.label === undefined ? '' : ` (${facts.label})`
  return plain(`${facts.host}:${facts.pid}${label}`)
}

export function remainingOf({ state, remainingMs }: HolderView): string {
  switch (state) {
    case 'held':
      return age(remainingMs)
    case 'offered':
      return `${age(remainingMs)} to accept`
    case 'leaving':
      return `${age(remainingMs)} min-hold`
    default:
      return state satisfies never
  }
}

/** A room for programs: fences as strings, no limit as null, owners as objects where they are. */
export function roomJson({ key, holders, queue, closedMs }: RoomView): object {
  const ticket = <T extends Ticket>(of: T) => ({
    ...of,
    limit: of.limit === UNLIMITED ? null : of.limit,
    owner: factsOf(of.owner) ?? of.owner,
  })
  return { key, holders: holders.map(ticket), queue: queue.map(ticket), closedMs }
}

interface Facts {
  readonly host: string
  readonly pid: number
  readonly label?: string
}

function factsOf(owner: string): Facts | undefined {
  try {
    const { host, pid, label } = JSON.parse(owner) as Partial<Record<keyof Facts, unknown>>
    if (typeof host !== 'string' || typeof pid !== 'number') return undefined
    return { host, pid, ...(typeof label === 'string' ? { label } : {}) }
  } catch {
    return undefined
  }
}
