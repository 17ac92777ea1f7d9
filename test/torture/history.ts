import { type RunHistory, readHistory } from '../../src/cli/torture/checker/history.ts'
import type { NemesisRecord, RegisterLine, WorkerRecord } from '../../src/cli/torture/record.ts'

/** A history that a test writes by hand, with as many processes as it names. */
export interface WrittenHistory {
  /** By the number of the process, from 1. Times are milliseconds. */
  readonly workers: Readonly<Record<number, readonly WorkerRecord[]>>
  readonly nemesis?: readonly NemesisRecord[]
  readonly register?: readonly RegisterLine[]
  /** When the faults are over. */
  readonly calmAt?: number
}

export function written({
  workers,
  nemesis = [],
  register = [],
  calmAt = 60_000,
}: WrittenHistory): RunHistory {
  const hired = Object.keys(workers).map(
    (worker): NemesisRecord => ({ tag: 'hired', at: 0, worker: Number(worker), slot: Number(worker) - 1 }),
  )
  return readHistory({
    workers: Object.entries(workers).map(([worker, records]) =>
      text([{ tag: 'start', at: 0, worker: Number(worker), slot: Number(worker) - 1 }, ...records]),
    ),
    nemesis: text([...hired, ...nemesis, { tag: 'calm', at: calmAt }]),
    registers: new Map([['k', text(register)]]),
  })
}

function text(records: readonly object[]): string {
  return records.map((record) => `\n${JSON.stringify(record)}\n`).join('')
}

export interface Hold {
  readonly id: string
  readonly asked: number
  /** The moments at which it was certainly held. */
  readonly held: readonly [number, ...number[]]
  readonly fence: number
  readonly queued?: number
  readonly granted?: number
  readonly released?: number
  readonly units?: number
  readonly limit?: number | null
}

/** The records of one hold of the key `k`. */
export function hold(what: Hold): readonly WorkerRecord[] {
  const { id, asked, held, fence, queued, released, units = 1, limit = 1 } = what
  const granted = what.granted ?? held[0]
  return [
    { tag: 'asked', at: asked, id, key: 'k', units, limit },
    ...(queued === undefined ? [] : [{ tag: 'queued', at: queued, id } as const]),
    { tag: 'granted', at: granted, id, fence: String(fence) },
    ...held.map((at) => ({ tag: 'held', at, id, leftMs: 1000 }) as const),
    ...(released === undefined ? [] : [{ tag: 'released', at: released, id } as const]),
  ]
}
