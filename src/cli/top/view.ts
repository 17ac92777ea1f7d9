import { LONGEST_KEY } from '../../base/arguments.ts'
import { LONGEST_REASON } from '../../errors.ts'
import type { InspectedHolder } from '../../index.ts'
import { clickOf, type Key } from './keys.ts'
import type { Row, RowOrder } from './rows.ts'
import { SORTS, type Sort } from './sorts.ts'

/** What the user has chosen to see. */
export interface TopView {
  readonly page: 'list' | 'key' | 'help'
  /** What the help goes back to. */
  readonly behindHelp: 'list' | 'key'
  readonly order: RowOrder
  readonly filter: string
  /** What is being typed: a filter, or why the holders of a key are to be evicted. */
  readonly typing: Typing | undefined
  /** The key whose line is marked; `undefined` before the first move. */
  readonly selected: string | undefined
  /** The first line on the screen, of the list or of a page. */
  readonly top: number
  readonly isPaused: boolean
  /** Whether clicks and the wheel come here, and select no text in the terminal. */
  readonly hasMouse: boolean
}

export type Typing =
  | { readonly tag: 'filter'; readonly text: string }
  | {
      readonly tag: 'evict'
      readonly key: string
      /** Who held the key when the question was asked. Whoever gets it meanwhile is not evicted. */
      readonly holders: readonly InspectedHolder[]
      readonly text: string
    }

export interface ListFacts {
  /** The rows of the list, in its order. */
  readonly rows: readonly Row[]
  /** How many of them fit on the screen. */
  readonly pageSize: number
  /** The line of the screen with the titles of the columns. The rows follow it. */
  readonly titlesLine: number
  /** The column of the list that is drawn there. */
  readonly columnAt: (place: number) => Sort | undefined
}

export function firstView(order: RowOrder): TopView {
  return {
    page: 'list',
    behindHelp: 'list',
    order,
    filter: '',
    typing: undefined,
    selected: undefined,
    top: 0,
    isPaused: false,
    hasMouse: true,
  }
}

/** Whether the key ends the program. While something is typed, or on a page in front of the list, `q` does not. */
export function quits(
  key: Key,
  { typing, page }: { readonly typing: object | undefined; readonly page: string },
): boolean {
  return key === 'ctrl-c' || ((key === 'q' || key === 'f10') && typing === undefined && page === 'list')
}

/** The view after a key was pressed. A key without meaning there changes nothing. */
export function pressed(view: TopView, key: Key, list: ListFacts): TopView {
  if (view.typing !== undefined) return typed({ ...view, typing: view.typing }, key)
  if (key === 'm') return { ...view, hasMouse: !view.hasMouse }
  if (key === 'p') return { ...view, isPaused: !view.isPaused }
  if (view.page === 'help') return onHelp(view, key, list)
  if (HELP.includes(key)) return { ...view, page: 'help', behindHelp: view.page, top: 0 }
  if (EVICT.includes(key)) {
    const { key: marked, room } = list.rows.find((row) => row.key === view.selected) ?? {}
    if (marked === undefined || room === undefined || room.holders.length === 0) return view
    return { ...view, typing: { tag: 'evict', key: marked, holders: room.holders, text: '' } }
  }
  if (view.page === 'key') return onKeyPage(view, key, list)
  const click = clickOf(key)
  if (click !== undefined) return clicked(view, click, list)
  const moved = MOVES[key]
  if (moved !== undefined) return move(view, moved, list)
  const sort = SORT_KEYS[key]
  if (sort !== undefined) return { ...view, order: ordered(view.order, sort), top: 0 }
  switch (key) {
    case '<':
    case 'left':
      return { ...view, order: { sort: beside(view.order.sort, -1), isReversed: false } }
    case '>':
    case 'f6':
    case 'right':
      return { ...view, order: { sort: beside(view.order.sort, 1), isReversed: false } }
    case 'r':
    case 'I':
      return { ...view, order: { ...view.order, isReversed: !view.order.isReversed } }
    case '/':
    case 'f3':
    case 'f4':
      return { ...view, typing: { tag: 'filter', text: view.filter } }
    case 'escape':
      return { ...view, filter: '', top: 0 }
    case 'enter': {
      const selected = view.selected ?? list.rows[0]?.key
      return selected === undefined ? view : { ...view, selected, page: 'key', top: 0 }
    }
    default:
      return view
  }
}

export const BACK: readonly Key[] = ['q', 'f10', 'escape', 'enter', 'backspace', 'left']
/** As in less(1), htop and k9s. */
export const HELP: readonly Key[] = ['h', '?', 'f1']
/** As in htop and k9s, which ask as well. */
export const EVICT: readonly Key[] = ['x', 'f9', 'ctrl-k', 'ctrl-d']

/** A click on a title sorts, on a line marks it, and on the marked line opens it. */
function clicked(view: TopView, { column, line }: Click, { rows, titlesLine, columnAt }: ListFacts): TopView {
  if (line === titlesLine) {
    const sort = columnAt(column)
    return sort === undefined ? view : { ...view, order: ordered(view.order, sort), top: 0 }
  }
  const row = line < titlesLine ? undefined : rows[view.top + line - titlesLine - 1]
  if (row === undefined) return view
  return row.key === view.selected ? { ...view, page: 'key', top: 0 } : { ...view, selected: row.key }
}

type Click = NonNullable<ReturnType<typeof clickOf>>

function onHelp(view: TopView, key: Key, list: ListFacts): TopView {
  if (BACK.includes(key) || HELP.includes(key)) return { ...view, page: view.behindHelp, top: 0 }
  return scrolled(view, key, list)
}

function onKeyPage(view: TopView, key: Key, list: ListFacts): TopView {
  return BACK.includes(key) ? { ...view, page: 'list', top: 0 } : scrolled(view, key, list)
}

function scrolled(view: TopView, key: Key, { pageSize }: ListFacts): TopView {
  const moved = MOVES[key]
  // The length of the page is not known here: `frameOf` limits `top`.
  return moved === undefined ? view : { ...view, top: Math.max(0, moved(view.top, pageSize)) }
}

function typed(view: TopView & { readonly typing: Typing }, key: Key): TopView {
  const { typing } = view
  const withText = (text: string): TopView => ({ ...view, typing: { ...typing, text } })
  switch (key) {
    case 'enter':
      // Whoever draws the view evicts: an eviction is no change of the view.
      return typing.tag === 'filter'
        ? { ...view, filter: typing.text, typing: undefined, top: 0 }
        : { ...view, typing: undefined }
    case 'escape':
      return { ...view, typing: undefined }
    default: {
      const text = edited(typing.text, key)
      return text.length < typing.text.length || text.length <= LONGEST[typing.tag] ? withText(text) : view
    }
  }
}

const LONGEST = { filter: LONGEST_KEY, evict: LONGEST_REASON } as const

/** A typed text after another key. */
export function edited(text: string, key: Key): string {
  switch (key) {
    case 'backspace':
      return [...text].slice(0, -1).join('')
    case 'ctrl-u':
      return ''
    case 'ctrl-w':
      return text.replace(/\S*\s*$/, '')
    default:
      return [...key].length === 1 ? text + key : text
  }
}

function move(view: TopView, moved: Move, { rows, pageSize }: ListFacts): TopView {
  const at = rows.findIndex(({ key }) => key === view.selected)
  // The first move marks the first line on the screen.
  const to = at === -1 ? view.top : moved(at, pageSize)
  const index = Math.max(0, Math.min(to, rows.length - 1))
  return { ...view, selected: rows[index]?.key ?? view.selected }
}

type Move = (at: number, pageSize: number) => number

/** What each key makes of the marked line. */
export const MOVES: Readonly<Record<string, Move>> = {
  up: (at) => at - 1,
  k: (at) => at - 1,
  down: (at) => at + 1,
  j: (at) => at + 1,
  'wheel-up': (at) => at - WHEEL_LINES,
  'wheel-down': (at) => at + WHEEL_LINES,
  'page-up': (at, pageSize) => at - pageSize,
  'page-down': (at, pageSize) => at + pageSize,
  home: () => 0,
  g: () => 0,
  end: () => Number.MAX_SAFE_INTEGER,
  G: () => Number.MAX_SAFE_INTEGER,
}

const WHEEL_LINES = 3

/** Capital letters, as in top(1). N and A are those of k9s. */
const SORT_KEYS: Readonly<Record<string, Sort>> = {
  K: 'key',
  N: 'key',
  A: 'held',
  S: 'state',
  M: 'mode',
  O: 'holder',
  H: 'held',
  L: 'left',
  E: 'ttl',
  F: 'fence',
  W: 'waiting',
  T: 'longest',
}

function ordered(order: RowOrder, sort: Sort): RowOrder {
  return { sort, isReversed: order.sort === sort && !order.isReversed }
}

function beside(sort: Sort, step: number): Sort {
  return SORTS[Math.max(0, Math.min(SORTS.indexOf(sort) + step, SORTS.length - 1))] ?? sort
}
