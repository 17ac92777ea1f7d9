import type { InspectedRoom } from '../../index.ts'
import { boundedRoom } from '../../room-watch/ticket-facts.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { openToLook } from '../open-locks.ts'
import { modeOf, ownerOf, remainingOf, roomJson } from '../room-text.ts'
import { whereOf } from '../store-name.ts'
import { placeOf } from '../store-option.ts'
import { type Column, table } from '../table.ts'
import { complain, paintFor, print, roomOnScreen } from '../terminal.ts'
import { age, json, plain } from '../text.ts'
import { UsageError } from '../usage-error.ts'

export async function listRooms(given: ParsedArguments): Promise<number> {
  const [prefix = '', more] = given.words
  if (more !== undefined) throw new UsageError(`Expected one PREFIX, got ${given.words.length}.`)
  const place = await placeOf(given)
  await using locks = await openToLook(place.url)
  const rows: string[][] = []
  const keys = new Set<string>()
  for await (const found of locks.inspect({ prefix })) {
    const room = boundedRoom(found)
    // A store that scans its keys may return one twice.
    if (keys.has(room.key)) continue
    keys.add(room.key)
    if (given.flag('json')) print(json(roomJson(room)))
    else rows.push(...rowsOf(room))
  }
  if (given.flag('json')) return EXIT.ok
  if (rows.length > 0) printTable(rows)
  else complain(`no key${prefix === '' ? '' : ` under ${json(prefix)}`} is held ${whereOf(place)}`)
  return EXIT.ok
}

const COLUMNS: readonly Column[] = [
  { title: 'KEY', narrow: 'cut' },
  { title: 'MODE' },
  { title: 'HOLDER', narrow: 'cut' },
  { title: 'HELD', align: 'right' },
  { title: 'LEFT', align: 'right' },
  { title: 'FENCE', align: 'right', narrow: 'drop' },
  { title: 'WAITING', align: 'right' },
]

function printTable(rows: readonly (readonly string[])[]): void {
  const paint = paintFor(process.stdout)
  const [titles = '', ...lines] = table(COLUMNS, rows, roomOnScreen())
  print(paint('bold', titles))
  for (const line of lines) print(line)
}

function rowsOf(room: InspectedRoom): string[][] {
  const key = plain(room.key)
  const waiting = String(room.queue.length)
  if (room.holders.length === 0) {
    const left = room.closedMs > 0 ? `${age(room.closedMs)} lock-delay` : '–'
    return [[key, '–', '–', '–', left, '–', waiting]]
  }
  return room.holders.map((holder) => [
    key,
    modeOf(holder),
    ownerOf(holder),
    age(holder.heldMs),
    remainingOf(holder),
    String(holder.fence),
    waiting,
  ])
}
