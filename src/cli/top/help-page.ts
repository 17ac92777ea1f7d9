import type { Paint } from '../terminal.ts'
import { cut, wrap } from '../text.ts'
import { STATES } from './rows.ts'

const KEYS: readonly (readonly [string, string])[] = [
  ['up down j k', 'mark a line; also PgUp, PgDn, Home, End'],
  ['Enter', 'all about the marked key; Enter, q or Esc goes back'],
  ['x F9 Ctrl-K', 'evict the holders of the marked key: asks why; Enter does it, Esc does not'],
  ['c', 'copy the marked key, where the terminal lets programs copy'],
  ['/ F4', 'show only keys and holders with this text; Esc shows all again'],
  ['< > F6', 'sort by the column to the left or right'],
  ['r I', 'the other way round'],
  ['K S M O H L E F W T', 'sort by key, state, mode, holder, held, left, ttl, fence, waiting, longest'],
  ['mouse', 'click: marks a line, opens the marked one, sorts by a title; wheel: moves'],
  ['m', 'leave the mouse to the terminal, to select text, and take it back'],
  ['p', 'pause, and go on'],
  ['Space', 'look now'],
  ['h ? F1', 'this page'],
  ['q Ctrl-C F10', 'quit'],
]

const COLUMNS: readonly (readonly [string, string])[] = [
  [
    'S',
    Object.entries(STATES)
      .map(([letter, text]) => `${letter} ${text}`)
      .join('; '),
  ],
  ['HELD', 'for how long it has been held, by the first of several holders'],
  ['LEFT', 'until the store gives it to somebody else if it is not renewed'],
  ['TTL', 'what the first holder asks for at each renewal; – until looks could tell it'],
  ['FENCE', 'the fencing token of the first holder'],
  ['WAITING', 'how many wait'],
  ['LONGEST', 'the longest time that one of them has waited'],
]

const NOTES: readonly string[] = [
  'Hand-overs are counted as seen: a hold that begins and ends between two looks is not.',
  'Expired holds were not renewed: the holder died, hangs, or was cut off from the store.',
]

export function helpLines({
  room,
  paint,
}: {
  readonly room: number
  readonly paint: Paint
}): readonly string[] {
  const title = (text: string): string => paint('bold', cut(text, room))
  const notes = NOTES.flatMap((note) => wrap(note, room))
  return [
    title('KEYS'),
    ...nameList(KEYS, room),
    '',
    title('COLUMNS'),
    ...nameList(COLUMNS, room),
    '',
    ...notes.map((line) => cut(line, room)),
  ]
}

/** Names with what they mean, beside each other or below each other. */
export function nameList(entries: readonly (readonly [string, string])[], room: number): readonly string[] {
  const left = Math.max(...entries.map(([name]) => name.length))
  // The text goes below its name where the column beside it would hold one word a line.
  if (room - left - 2 < NARROWEST_TEXT) {
    return entries.flatMap(([name, text]) =>
      [name, ...wrap(text, Math.max(1, room - 2)).map((line) => `  ${line}`)].map((line) => cut(line, room)),
    )
  }
  const margin = ' '.repeat(left + 2)
  return entries.flatMap(([name, text]) =>
    wrap(text, room - left - 2).map((line, at) => (at === 0 ? name.padEnd(left + 2) : margin) + line),
  )
}

const NARROWEST_TEXT = 24
