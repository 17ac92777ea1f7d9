import type { RegisterLine } from '../record.ts'
import { type Check, type CheckInput, Findings } from './check.ts'
import { forgetfulFaults, isForgotten } from './exclusion.ts'
import { nameOf, type RecordedFault, type RecordedTicket, type RunHistory } from './history.ts'

/** What the registers show. */
export interface RegisterChecks {
  readonly fenced: Check
  readonly plain: Check
  /** Writes of a holder that had lost its lease by then, or was killed: nobody can say that they were in time. */
  readonly lateWrites: number
  /** Those of them that the fence has kept out. */
  readonly refused: number
}

/**
 * A write is lost if a later write was made by somebody who had not seen it. With fences nothing excuses that. Without, a write
 * that came after the end of its lease does: a process may be stopped between its last look and the write. So does a server
 * that may have lost the lease of one of the two writers.
 */
export function checkRegisters({ history, terms }: CheckInput): RegisterChecks {
  const forgetful = forgetfulFaults({ history, terms })
  const plain = new Findings()
  const fenced = new Findings()
  const owners = new Map(history.tickets.map((ticket) => [ticket.id, ticket]))
  let writes = 0
  let lateWrites = 0
  let refused = 0
  for (const [key, lines] of history.registers) {
    const written = lines.filter(({ what }) => what === 'write')
    writes += written.length
    lateWrites += written.filter((line) => !isInTime(line, history)).length
    checkPlain(key, { written, history, owners, forgetful, ttlMs: terms.ttlMs, findings: plain })
    refused += checkFenced(key, { lines, owners, findings: fenced })
  }
  return {
    fenced: fenced.as('fenced-register', writes),
    plain: plain.as('plain-register', writes),
    lateWrites,
    refused,
  }
}

function isInTime({ id, nth }: RegisterLine, { confirmed }: RunHistory): boolean {
  return confirmed.has(`${id} ${nth}`)
}

type Owners = ReadonlyMap<string, RecordedTicket>

interface PlainInput {
  readonly written: readonly RegisterLine[]
  readonly history: RunHistory
  readonly owners: Owners
  readonly forgetful: readonly RecordedFault[]
  readonly ttlMs: number
  readonly findings: Findings
}

function checkPlain(key: string, input: PlainInput): void {
  const { written, history, owners, findings } = input
  const places = new Map(written.map((line, index) => [writeOf(line), index]))
  for (const [index, line] of written.entries()) {
    const seen = line.saw === '' ? -1 : (places.get(line.saw) ?? -1)
    if (seen === index - 1) continue
    const between = written.slice(seen + 1, index)
    const excused =
      !isInTime(line, history) ||
      between.every((one) => !isInTime(one, history) || heldAfterLoss([one, line], input))
    findings.add(evidenceOf(key, line, between, owners), { excused })
  }
}

/** Whether both writers could hold the key, because the store had lost the lease of the first one. */
function heldAfterLoss(lines: readonly RegisterLine[], { owners, forgetful, ttlMs }: PlainInput): boolean {
  const writers = lines
    .flatMap(({ id }) => owners.get(id) ?? [])
    .sort((one, other) => (one.firstHeldAt ?? 0) - (other.firstHeldAt ?? 0))
  return writers.length === lines.length && isForgotten(writers, forgetful, ttlMs)
}

interface FencedInput {
  readonly lines: readonly RegisterLine[]
  readonly owners: Owners
  readonly findings: Findings
}

/** Returns how many writes were refused. */
function checkFenced(key: string, { lines, owners, findings }: FencedInput): number {
  let highest = 0n
  let last: RegisterLine | undefined
  let refused = 0
  for (const line of lines) {
    const fence = BigInt(line.fence)
    const counts = fence >= highest
    if (counts) highest = fence
    if (line.what === 'enter') continue
    if (!counts) {
      refused += 1
      continue
    }
    if (line.sawFenced !== (last === undefined ? '' : writeOf(last)))
      findings.add(evidenceOf(key, line, last === undefined ? [] : [last], owners))
    last = line
  }
  return refused
}

function evidenceOf(key: string, line: RegisterLine, lost: readonly RegisterLine[], owners: Owners) {
  const at = timeOf(line, owners)
  const writers = lost.slice(0, 3).map((one) => writerOf(one, owners))
  return {
    key,
    from: Math.min(at, ...lost.slice(0, 3).map((one) => timeOf(one, owners))),
    until: at,
    text: `${writerOf(line, owners)} has overwritten what it had not seen: ${writers.join('; ')}`,
  }
}

function writeOf({ id, nth }: RegisterLine): string {
  return `${id} ${nth}`
}

function timeOf({ id }: RegisterLine, owners: Owners): number {
  return owners.get(id)?.lastHeldAt ?? 0
}

function writerOf({ id, nth, fence }: RegisterLine, owners: Owners): string {
  const owner = owners.get(id)
  const writer = owner === undefined ? 'an unknown process' : nameOf(owner.worker)
  return `write ${nth} of ${writer} under fence ${fence}`
}
