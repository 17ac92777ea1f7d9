import type { InspectedRoom } from '../../index.ts'
import type { HoldRecord, KeyHistory } from '../../room-watch/hold-record.ts'
import { lateMsOf, type RenewalFacts, roundTtlMs } from '../../room-watch/renewal-facts.ts'
import type { RoomWatch } from '../../room-watch/room-watch.ts'
import { modeOf, ownerOf, remainingOf } from '../room-text.ts'
import { type Column, table } from '../table.ts'
import type { Paint } from '../terminal.ts'
import { age, cut, plain } from '../text.ts'
import { counted, timeOf } from './header.ts'

export interface KeyFacts {
  readonly key: string
  /** When the store was looked at. */
  readonly at: number
  /** `undefined` when the key has neither holders nor waiters. */
  readonly room: InspectedRoom | undefined
  readonly history: KeyHistory | undefined
  readonly renewalsOf: RoomWatch['renewalsOf']
}

/** Everything known about one key: its holders, its waiters, and the holds that this command has seen end. */
export function keyLines(
  { key, at, room, history, renewalsOf }: KeyFacts,
  { room: columns, paint }: { readonly room: number; readonly paint: Paint },
): readonly string[] {
  const section = (title: string, lines: readonly string[]): readonly string[] =>
    lines.length === 0
      ? []
      : ['', paint('bold', cut(title, columns)), ...lines.map((line) => cut(line, columns))]
  const holds = (history?.holds ?? []).filter(({ untilAt }) => untilAt !== undefined).toReversed()
  return [
    paint('bold', cut(plain(key), columns)),
    ...(room === undefined
      ? [cut('Nobody holds it, and nobody waits for it.', columns)]
      : closedLine(room).map((line) => cut(line, columns))),
    ...lateLines(room, renewalsOf).map((line) => paint('red', cut(line, columns))),
    ...section(`HOLDERS ${room?.holders.length ?? 0}`, holderLines({ room, at, renewalsOf }, columns)),
    ...section(`QUEUE ${room?.queue.length ?? 0}, in order of arrival`, waiterLines(room, columns)),
    ...section('TIMELINE, as far as it was seen from here', pastHoldLines(holds, columns)),
  ]
}

function closedLine({ closedMs }: InspectedRoom): readonly string[] {
  return closedMs > 0 ? [`Closed by a lock-delay for ${age(closedMs)} more.`] : []
}

function lateLines(room: InspectedRoom | undefined, renewalsOf: RoomWatch['renewalsOf']): readonly string[] {
  return (room?.holders ?? []).slice(0, MOST).flatMap((holder) => {
    const lateMs = lateMsOf(holder, renewalsOf(holder.id))
    return lateMs === undefined ? [] : [`${ownerOf(holder)} is not renewing for ${age(lateMs)}.`]
  })
}

const HOLDERS: readonly Column[] = [
  { title: 'HOLDER', narrow: 'cut' },
  { title: 'MODE', narrow: 'drop' },
  { title: 'HELD', align: 'right' },
  { title: 'LEFT', align: 'right' },
  { title: 'TTL', align: 'right' },
  { title: 'FENCE', align: 'right' },
  { title: 'ID', narrow: 'drop' },
]

/** A dash where looks could not tell it yet. */
function ttlOf(facts: RenewalFacts | undefined): string {
  return facts?.isKnown === true ? age(roundTtlMs(facts.ttlMs)).replace('.0s', 's') : '–'
}

function holderLines(
  { room, at, renewalsOf }: Pick<KeyFacts, 'room' | 'at' | 'renewalsOf'>,
  columns: number,
): readonly string[] {
  const holders = room?.holders ?? []
  if (holders.length === 0) return []
  const rows = holders
    .slice(0, MOST)
    .map((holder) => [
      ownerOf(holder),
      modeOf(holder),
      `${age(holder.heldMs)} since ${timeOf(at - holder.heldMs)}`,
      remainingOf(holder),
      ttlOf(renewalsOf(holder.id)),
      String(holder.fence),
      plain(holder.id),
    ])
  return [...table(HOLDERS, rows, columns), ...andMore(holders.length)]
}

const WAITERS: readonly Column[] = [
  { title: '#', align: 'right' },
  { title: 'WAITER', narrow: 'cut' },
  { title: 'MODE', narrow: 'drop' },
  { title: 'WAITED', align: 'right' },
  { title: 'ID', narrow: 'drop' },
]

function waiterLines(room: InspectedRoom | undefined, columns: number): readonly string[] {
  const queue = room?.queue ?? []
  if (queue.length === 0) return []
  const rows = queue
    .slice(0, MOST)
    .map((waiter, index) => [
      String(index + 1),
      ownerOf(waiter),
      modeOf(waiter),
      age(waiter.waitedMs),
      plain(waiter.id),
    ])
  return [...table(WAITERS, rows, columns), ...andMore(queue.length)]
}

const PAST_HOLDS: readonly Column[] = [
  { title: 'UNTIL' },
  { title: 'HELD FOR', align: 'right' },
  { title: 'END' },
  { title: 'HOLDER', narrow: 'cut' },
  { title: 'FENCE', align: 'right', narrow: 'drop' },
]

function pastHoldLines(holds: readonly HoldRecord[], columns: number): readonly string[] {
  if (holds.length === 0) return []
  const rows = holds.map((hold) => [
    timeOf(hold.untilAt ?? 0),
    age((hold.untilAt ?? 0) - hold.fromAt),
    hold.end ?? 'unclear',
    ownerOf(hold),
    String(hold.fence),
  ])
  return table(PAST_HOLDS, rows, columns)
}

/** Longer lists are cut, as nobody reads them. */
const MOST = 1000

function andMore(count: number): readonly string[] {
  return count > MOST ? [`… and ${counted(count - MOST, 'more')}`] : []
}
