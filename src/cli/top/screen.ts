import type { KeyHistory } from '../../room-watch/hold-record.ts'
import type { RoomWatch } from '../../room-watch/room-watch.ts'
import { ownerOf } from '../room-text.ts'
import type { Paint } from '../terminal.ts'
import { cut, plain } from '../text.ts'
import type { TableColumns } from './columns.ts'
import { type ActionNotice, type Frame, type FrameBody, framed } from './frame.ts'
import { counted, type HeaderFacts, headerLines } from './header.ts'
import { helpLines } from './help-page.ts'
import { keyLines } from './key-page.ts'
import { fill, topFor, typingLine, wholeHints } from './lines.ts'
import type { Row } from './rows.ts'
import type { TopView, Typing } from './view.ts'

export interface ScreenFacts extends HeaderFacts {
  readonly view: TopView
  /** The rows of the list, filtered and sorted. */
  readonly rows: readonly Row[]
  /** The history of the key whose page is open. */
  readonly history: KeyHistory | undefined
  readonly renewalsOf: RoomWatch['renewalsOf']
  readonly columns: TableColumns
  /** What became of the last action. */
  readonly notice?: ActionNotice | undefined
  readonly size: { readonly columns: number; readonly rows: number }
  readonly paint: Paint
}

/** The lines that fill the screen. */
export function frameOf(facts: ScreenFacts): Frame {
  const { view, size, paint } = facts
  const room = size.columns
  const filter = view.filter === '' ? '' : `  filter: ${view.filter}`
  const header = headerLines(facts, { room, paint, note: `${filter}${view.isPaused ? '  [paused]' : ''}` })
  return framed({
    header,
    body: (space) => (view.page === 'list' ? list(facts, space) : page(facts, space)),
    bottom: () => promptOf(facts),
    rows: size.rows,
  })
}

function list({ view, rows, snapshot, columns, size, paint }: ScreenFacts, space: number): FrameBody {
  const pageSize = Math.max(1, space - 1)
  const at = rows.findIndex(({ key }) => key === view.selected)
  const top = topFor({ at, top: view.top, count: rows.length, pageSize })
  const shown = rows.slice(top, top + pageSize)
  const [titles = '', ...lines] = columns.lines(shown, { room: size.columns - MARK, order: view.order })
  const painted = lines.map((line, index) => {
    if (top + index === at) return paint('inverse', fill(`> ${line}`, size.columns))
    const plain = cut(`  ${line}`, size.columns)
    if (snapshot.store.tag === 'away') return paint('dim', plain)
    return shown[index]?.lateMs === undefined ? plain : paint('red', plain)
  })
  const empty = rows.length > 0 || snapshot.at === 0 ? [] : [cut(emptiness(view), size.columns)]
  return {
    lines: [paint('inverse', fill(`  ${titles}`, size.columns)), ...painted, ...empty].slice(0, space),
    top,
    pageSize,
  }
}

function emptiness({ filter }: TopView): string {
  return filter === ''
    ? '  Nobody holds a key.'
    : '  No key and no holder has this text. Esc shows all again.'
}

function page({ view, snapshot, history, renewalsOf, size, paint }: ScreenFacts, space: number): FrameBody {
  const options = { room: size.columns, paint }
  const key = view.selected ?? ''
  const all =
    view.page === 'help'
      ? helpLines(options)
      : keyLines(
          {
            ...{ key, at: snapshot.at, history, renewalsOf },
            room: snapshot.rooms.find((room) => room.key === key),
          },
          options,
        )
  const top = Math.max(0, Math.min(view.top, all.length - space))
  return { lines: all.slice(top, top + space), top, pageSize: Math.max(1, space - 1) }
}

function promptOf({ view, rows, notice, size, paint }: ScreenFacts): string {
  const room = size.columns
  const { typing } = view
  if (typing !== undefined) {
    const question = typing.tag === 'filter' ? 'Filter: ' : `${evictQuestion(typing)} `
    return typingLine(question, { typed: typing.text, room })
  }
  if (notice !== undefined) return paint(notice.isBad ? 'red' : 'green', cut(notice.text, room))
  const found = view.filter === '' ? '' : `${counted(rows.length, 'key')} shown  `
  const hints = {
    list: `${found}q quit  h help  / filter  Enter key  <> sort  x evict  c copy  p pause`,
    key: 'q back  h help  x evict  c copy  up down scroll  p pause',
    help: 'q back  up down scroll',
  }
  return paint('dim', wholeHints(hints[view.page], room))
}

function evictQuestion({ key, holders }: Extract<Typing, { tag: 'evict' }>): string {
  const [first] = holders
  const who = first === undefined || holders.length > 1 ? `all ${holders.length} holders` : ownerOf(first)
  return `Evict ${who} from ${plain(key)}? Esc: no. Enter: yes. Reason:`
}

/** How wide the mark before a line is. */
export const MARK = 2
