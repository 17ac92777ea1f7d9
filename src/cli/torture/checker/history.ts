import type { FaultKind, NemesisRecord, RegisterLine, WorkerRecord } from '../record.ts'

/** A run, as its history tells it. */
export interface RunHistory {
  /** In the order in which they were asked for. */
  readonly tickets: readonly RecordedTicket[]
  readonly workers: readonly RecordedWorker[]
  readonly faults: readonly RecordedFault[]
  /** Of the process with the proxies. */
  readonly gaps: readonly Gap[]
  readonly registers: ReadonlyMap<string, readonly RegisterLine[]>
  /** The last write of a holder that was certainly within its lease, by `id nth`. */
  readonly confirmed: ReadonlySet<string>
  readonly lastRounds: readonly LastRound[]
  /** When the faults were over. The last round follows. */
  readonly calmAt: number
  /** The last moment of the history. */
  readonly endAt: number
}

/** One attempt to hold one key. */
export interface RecordedTicket {
  readonly id: string
  readonly key: string
  readonly units: number
  readonly limit: number
  readonly worker: RecordedWorker
  readonly askedAt: number
  queuedAt: number | undefined
  grantedAt: number | undefined
  fence: bigint | undefined
  /** The first and the last moment at which it was certainly held. */
  firstHeldAt: number | undefined
  lastHeldAt: number | undefined
  /** When the lease would end without a further renewal, as the library said last. */
  deadlineAt: number | undefined
  refusedAt: number | undefined
  lost: { readonly at: number; readonly reason: string } | undefined
  releasedAt: number | undefined
  gaveUpAt: number | undefined
}

export interface RecordedWorker {
  readonly worker: number
  readonly slot: number
  readonly gaps: Gap[]
  hiredAt: number
  /** When its history was full, so that it began no further task. */
  fullAt: number | undefined
  goneAt: number
}

export interface RecordedFault {
  readonly nth: number
  readonly kind: FaultKind
  /** `null`: all processes. */
  readonly slot: number | null
  readonly how: string
  readonly from: number
  until: number
}

export interface Gap {
  readonly from: number
  readonly until: number
}

export interface LastRound {
  readonly worker: RecordedWorker
  readonly key: string
  readonly at: number
  readonly error: string | null
}

/** The texts of the files of a run. A line that was cut off by a kill is left out. */
export interface HistoryFiles {
  readonly workers: readonly string[]
  readonly nemesis: string
  /** By key. */
  readonly registers: ReadonlyMap<string, string>
}

export function readHistory(files: HistoryFiles): RunHistory {
  const nemesis = linesOf<NemesisRecord>(files.nemesis)
  const told = readNemesis(nemesis)
  const reading: HistoryReading = {
    tickets: new Map(),
    confirmed: new Set(),
    lastRounds: [],
    endAt: told.endAt,
  }
  for (const text of files.workers) readWorker(linesOf<WorkerRecord>(text), told.workers, reading)
  const registers = new Map(
    Array.from(files.registers, ([key, text]) => [key, linesOf<RegisterLine>(text)] as const),
  )
  const tickets = [...reading.tickets.values()].sort((one, other) => one.askedAt - other.askedAt)
  for (const worker of told.workers.values()) worker.goneAt = Math.min(worker.goneAt, reading.endAt)
  for (const fault of told.faults) fault.until = Math.min(fault.until, reading.endAt)
  const { confirmed, lastRounds, endAt } = reading
  const { faults, gaps, calmAt } = told
  return {
    tickets,
    workers: [...told.workers.values()],
    faults,
    gaps,
    registers,
    confirmed,
    lastRounds,
    calmAt,
    endAt,
  }
}

interface HistoryReading {
  readonly tickets: Map<string, RecordedTicket>
  readonly confirmed: Set<string>
  readonly lastRounds: LastRound[]
  endAt: number
}

function linesOf<Line>(text: string): Line[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line) as Line)
}

function readNemesis(records: readonly NemesisRecord[]) {
  const workers = new Map<number, RecordedWorker>()
  const faults = new Map<number, RecordedFault>()
  const gaps: Gap[] = []
  let calmAt = Number.POSITIVE_INFINITY
  let endAt = 0
  for (const record of records) {
    endAt = Math.max(endAt, record.at)
    switch (record.tag) {
      case 'hired': {
        const { worker, slot, at } = record
        const goneAt = Number.POSITIVE_INFINITY
        workers.set(worker, { worker, slot, gaps: [], hiredAt: at, fullAt: undefined, goneAt })
        break
      }
      case 'gone': {
        const worker = workers.get(record.worker)
        if (worker !== undefined) worker.goneAt = record.at
        break
      }
      case 'fault': {
        const { nth, kind, slot, how, at } = record
        faults.set(nth, { nth, kind, slot, how, from: at, until: Number.POSITIVE_INFINITY })
        break
      }
      case 'fault-ended': {
        const fault = faults.get(record.nth)
        if (fault !== undefined) fault.until = record.at
        break
      }
      case 'gap':
        gaps.push({ from: record.from, until: record.at })
        break
      case 'calm':
        calmAt = record.at
        break
      default:
        record satisfies never
    }
  }
  return { workers, faults: [...faults.values()], gaps, calmAt, endAt }
}

function readWorker(
  records: readonly WorkerRecord[],
  workers: ReadonlyMap<number, RecordedWorker>,
  reading: HistoryReading,
): void {
  const [start] = records
  const worker = start?.tag === 'start' ? workers.get(start.worker) : undefined
  if (worker === undefined) return
  const { tickets, confirmed, lastRounds } = reading
  for (const record of records) {
    if ('at' in record) reading.endAt = Math.max(reading.endAt, record.at)
    switch (record.tag) {
      case 'start':
        break
      case 'asked': {
        const { id, key, units, at } = record
        tickets.set(
          id,
          newTicket({ id, key, units, limit: record.limit ?? Number.POSITIVE_INFINITY, worker, askedAt: at }),
        )
        break
      }
      case 'gap':
        worker.gaps.push({ from: record.from, until: record.at })
        break
      case 'full':
        worker.fullAt ??= record.at
        break
      case 'took-last':
        lastRounds.push({ worker, key: record.key, at: record.at, error: record.error })
        break
      case 'wrote':
        if (record.held) confirmed.add(`${record.id} ${record.nth}`)
        break
      default: {
        const ticket = tickets.get(record.id)
        if (ticket !== undefined) note(ticket, record)
      }
    }
  }
}

type TicketRequest = Pick<RecordedTicket, 'id' | 'key' | 'units' | 'limit' | 'worker' | 'askedAt'>

function newTicket(ticket: TicketRequest): RecordedTicket {
  return {
    ...ticket,
    queuedAt: undefined,
    grantedAt: undefined,
    fence: undefined,
    firstHeldAt: undefined,
    lastHeldAt: undefined,
    deadlineAt: undefined,
    refusedAt: undefined,
    lost: undefined,
    releasedAt: undefined,
    gaveUpAt: undefined,
  }
}

type TicketStep = Exclude<WorkerRecord, { tag: 'start' | 'asked' | 'gap' | 'full' | 'took-last' | 'wrote' }>

function note(ticket: RecordedTicket, record: TicketStep): void {
  const { at } = record
  switch (record.tag) {
    case 'queued':
      ticket.queuedAt = at
      return
    case 'granted':
      ticket.grantedAt = at
      ticket.fence = BigInt(record.fence)
      return
    case 'held':
      ticket.firstHeldAt ??= at
      ticket.lastHeldAt = at
      ticket.deadlineAt = at + record.leftMs
      return
    case 'refused':
      ticket.refusedAt ??= at
      return
    case 'lost':
      ticket.lost ??= { at, reason: record.reason }
      return
    case 'released':
      ticket.releasedAt ??= at
      return
    case 'gave-up':
      ticket.gaveUpAt = at
      return
    default:
      record satisfies never
  }
}

/** `process 5 (place 1)`: the faults name the place, and a killed process is replaced by a process of another number. */
export function nameOf({ worker, slot }: RecordedWorker): string {
  return `process ${worker} (place ${slot + 1})`
}

/** When the history of the ticket ends: its process gave it up, lost it, or is gone. */
export function endOf(ticket: RecordedTicket): number {
  const ended = ticket.releasedAt ?? ticket.gaveUpAt ?? ticket.lost?.at ?? ticket.worker.goneAt
  return Math.min(ended, ticket.worker.goneAt)
}

/** Whether two tickets cannot hold together. */
export function excludes(one: RecordedTicket, other: RecordedTicket): boolean {
  return one.units + other.units > Math.min(one.limit, other.limit)
}

/** Each group keeps the order of the tickets. */
export function ticketsByKey(tickets: readonly RecordedTicket[]): ReadonlyMap<string, RecordedTicket[]> {
  const byKey = new Map<string, RecordedTicket[]>()
  for (const ticket of tickets) {
    const known = byKey.get(ticket.key)
    if (known === undefined) byKey.set(ticket.key, [ticket])
    else known.push(ticket)
  }
  return byKey
}
