import type { Snapshot } from '../../room-watch/room-watch.ts'
import type { Paint } from '../terminal.ts'
import { age, plain } from '../text.ts'
import { start } from './lines.ts'
import type { Sums } from './sums.ts'

export interface HeaderFacts {
  readonly store: string
  readonly prefix: string
  readonly everyMs: number
  readonly snapshot: Snapshot
  readonly sums: Sums
}

/** Three lines: store and time, what is held and waited for, what changes. Then a line for each thing that a look cannot know. */
export function headerLines(
  { store, prefix, everyMs, snapshot, sums }: HeaderFacts,
  { room, paint, note = '' }: { readonly room: number; readonly paint: Paint; readonly note?: string },
): readonly string[] {
  const { at, isCut, caveats, store: state } = snapshot
  const under = prefix === '' ? '' : `  under ${plain(prefix)}`
  const title = `holdfast top  ${at === 0 ? 'looking …' : `${timeOf(at)} ${zoneName()}`}  ${store}${under}${note}`
  const longest = sums.longestMs === undefined ? '' : `, the longest for ${age(sums.longestMs)}`
  const offered = sums.offered === 0 ? '' : `, ${number(sums.offered)} offered`
  const keys = `${isCut ? 'more than ' : ''}${counted(sums.keys, 'key')}`
  const there = `${keys}, ${number(sums.held)} held${offered}, ${number(sums.waiting)} waiting${longest}`
  const rate = sums.handOvers === undefined ? '–' : sums.handOvers.toFixed(1)
  const happens = `${rate} hand-overs/s, ${number(sums.expired)} expired in a minute`
  if (state.tag === 'present') {
    const look = `a look takes ${age(state.lookMs)}, every ${age(everyMs)}`
    const unknown = caveats.map((caveat) => paint('yellow', start(plain(caveat), room)))
    return [
      paint('bold', start(title, room)),
      start(there, room),
      start(`${happens}; ${look}`, room),
      ...unknown,
    ]
  }
  const away = `STORE AWAY since ${timeOf(state.sinceAt)}: ${plain(state.message)}`
  return [paint('bold', start(title, room)), start(there, room), paint(['red', 'bold'], start(away, room))]
}

/** The local time of day. */
export function timeOf(at: number): string {
  const date = new Date(at)
  return [date.getHours(), date.getMinutes(), date.getSeconds()]
    .map((part) => String(part).padStart(2, '0'))
    .join(':')
}

/** The zone of all times of day on the screen: `GMT+1`. */
export function zoneName(): string {
  const parts = new Intl.DateTimeFormat('en', { timeZoneName: 'short' }).formatToParts(Date.now())
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? ''
}

export function counted(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? '' : 's'}`
}

function number(count: number): string {
  return count.toLocaleString('en-US')
}
