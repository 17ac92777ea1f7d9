import type { Paint } from '../../terminal.ts'
import { cut, wrap } from '../../text.ts'
import { nameList } from '../help-page.ts'

const KEYS: readonly (readonly [string, string])[] = [
  ['up down j k', 'mark a job; also PgUp, PgDn, Home, End'],
  ['] N', 'the next page, with older jobs'],
  ['[ P', 'the page before, with newer jobs'],
  ['Enter', 'all about the marked job; Enter, q or Esc goes back'],
  ['s', 'show only jobs in the next state'],
  ['/ F4 i', 'show only jobs of a name; show only jobs with some ids'],
  ['S B', 'show only jobs enqueued since, or before, a time; Esc shows all jobs again'],
  ['t', 'tick the marked job, or take its tick away'],
  ['*', 'tick all jobs that fit the filter, also those on other pages'],
  ['R D', 'retry, or remove, the ticked jobs, else the marked one: asks first'],
  ['C', 'cancel them: asks why; Enter does it, Esc does not'],
  ['Z', 'pause the name of the marked job, or resume it: asks first'],
  ['H', 'what was enqueued and what ended in the last hour'],
  ['c', 'copy the id of the marked job, where the terminal lets programs copy'],
  ['mouse m', 'click: mark or open a job; m: leave the mouse to the terminal, or take it back'],
  ['Space', 'look now'],
  ['h ? F1', 'this page'],
  ['q Ctrl-C F10', 'quit'],
]

const NOTES: readonly string[] = [
  'A retry makes dead, cancelled and superseded jobs ready again. A cancel ends jobs that have not ended. A remove deletes jobs that have ended.',
  'While a name is paused, none of its jobs begins, in any process. Jobs that run go on.',
  'If counting takes long, the counts are older than the list.',
]

export function jobsHelpLines({
  room,
  paint,
}: {
  readonly room: number
  readonly paint: Paint
}): readonly string[] {
  const notes = NOTES.flatMap((note) => wrap(note, room))
  return [
    paint('bold', cut('KEYS', room)),
    ...nameList(KEYS, room),
    '',
    ...notes.map((line) => cut(line, room)),
  ]
}
