import type { InspectedRoom } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { openToLook } from '../open-locks.ts'
import { findRoom } from '../room.ts'
import { modeOf, ownerOf, remainingOf, roomJson } from '../room-text.ts'
import { whereOf } from '../store-name.ts'
import { placeOf } from '../store-option.ts'
import { table } from '../table.ts'
import { complain, type Paint, paintFor, print, roomOnScreen } from '../terminal.ts'
import { age, json, plain } from '../text.ts'

export async function showRoom(given: ParsedArguments): Promise<number> {
  const key = given.word('one KEY')
  const place = await placeOf(given)
  await using locks = await openToLook(place.url)
  const found = await findRoom(locks, key)
  const room = found ?? { key, holders: [], queue: [], closedMs: 0 }
  if (given.flag('json')) print(json(roomJson(room)))
  else for (const line of pageOf(room, paintFor(process.stdout))) print(line)
  if (found === undefined && place.isDefault) complain(`looked ${whereOf(place)}`)
  return EXIT.ok
}

function pageOf(room: InspectedRoom, paint: Paint): readonly string[] {
  const lines = [`${paint('bold', plain(room.key))}  ${stateOf(room)}`]
  if (room.holders.length > 0) {
    const columns = [
      { title: 'HOLDER', narrow: 'cut' as const },
      { title: 'MODE' },
      { title: 'HELD', align: 'right' as const },
      { title: 'LEFT', align: 'right' as const },
      { title: 'FENCE', align: 'right' as const },
      { title: 'ID' },
    ]
    const rows = room.holders.map((holder) => [
      ownerOf(holder),
      modeOf(holder),
      age(holder.heldMs),
      remainingOf(holder),
      String(holder.fence),
      plain(holder.id),
    ])
    lines.push('', ...table(columns, rows, roomOnScreen()))
  }
  if (room.queue.length > 0) {
    const columns = [
      { title: 'WAITER', narrow: 'cut' as const },
      { title: 'MODE' },
      { title: 'WAITED', align: 'right' as const },
      { title: 'ID' },
    ]
    const rows = room.queue.map((waiter) => [
      ownerOf(waiter),
      modeOf(waiter),
      age(waiter.waitedMs),
      plain(waiter.id),
    ])
    lines.push('', ...table(columns, rows, roomOnScreen()))
  }
  return lines
}

function stateOf({ holders, queue, closedMs }: InspectedRoom): string {
  const parts = [
    holders.length > 0 ? `${holders.length} holding` : undefined,
    closedMs > 0 ? `closed by a lock-delay for ${age(closedMs)}` : undefined,
    queue.length > 0 ? `${queue.length} waiting` : undefined,
  ].filter((part) => part !== undefined)
  return parts.length === 0 ? 'free' : parts.join(', ')
}
