import type { Key } from './keys.ts'
import type { Row, RowOrder } from './rows.ts'
import { SORTS, type Sort } from './sorts.ts'

/** What the user has chosen to see. */
export interface TopView {
  readonly page: 'list' | 'key' | 'help'
  /** What the help goes back to. */
  readonly behindHelp: 'list' | 'key'
  readonly order: RowOrder
  readonly filter: string
  /** The filter while it is typed. */
  readonly typing: string | undefined
  /** The key whose line is marked; `undefined` before the first move. */
  readonly selected: string | undefined
  /** The first line on the screen, of the list or of a page. */
  readonly top: number
  readonly isPaused: boolean
}

export interface ListFacts {
  /** The rows of the list, in its order. */
  readonly rows: readonly Row[]
  /** How many of them fit on the screen. */
  readonly pageSize: number
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
  }
}

/** The view after a key was pressed. A key without meaning there changes nothing. */
export function pressed(view: TopView, key: Key, list: ListFacts): TopView {
  if (view.typing !== undefined) return typed({ ...view, typing: view.typing }, key)
  if (key === 'p') return { ...view, isPaused: !view.isPaused }
  if (view.page === 'help') return onHelp(view, key, list)
  if (key === 'h' || key === '?') return { ...view, page: 'help', behindHelp: view.page, top: 0 }
  if (view.page === 'key') return onKeyPage(view, key, list)
  const moved = MOVES[key]
  if (moved !== undefined) return move(view, moved, list)
  const sort = SORT_KEYS[key]
  if (sort !== undefined) return { ...view, order: ordered(view.order, sort), top: 0 }
  switch (key) {
    case '<':
    case 'left':
      return { ...view, order: { sort: beside(view.order.sort, -1), isReversed: false } }
    case '>':
    case 'right':
      return { ...view, order: { sort: beside(view.order.sort, 1), isReversed: false } }
    case 'r':
      return { ...view, order: { ...view.order, isReversed: !view.order.isReversed } }
    case '/':
      return { ...view, typing: view.filter }
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

const BACK: readonly Key[] = ['q', 'escape', 'enter', 'backspace', 'left']

function onHelp(view: TopView, key: Key, list: ListFacts): TopView {
  if (BACK.includes(key) || key === 'h' || key === '?') return { ...view, page: view.behindHelp, top: 0 }
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

function typed(view: TopView & { readonly typing: string }, key: Key): TopView {
  switch (key) {
    case 'enter':
      return { ...view, filter: view.typing, typing: undefined, top: 0 }
    case 'escape':
      return { ...view, typing: undefined }
    case 'backspace':
      return { ...view, typing: [...view.typing].slice(0, -1).join('') }
    case 'ctrl-u':
      return { ...view, typing: '' }
    case 'ctrl-w':
      return { ...view, typing: view.typing.replace(/\S*\s*$/, '') }
    default:
      return [...key].length === 1 ? { ...view, typing: view.typing + key } : view
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

const MOVES: Readonly<Record<string, Move>> = {
  up: (at) => at - 1,
  k: (at) => at - 1,
  down: (at) => at + 1,
  j: (at) => at + 1,
  'page-up': (at, pageSize) => at - pageSize,
  'page-down': (at, pageSize) => at + pageSize,
  home: () => 0,
  g: () => 0,
  end: () => Number.MAX_SAFE_INTEGER,
  G: () => Number.MAX_SAFE_INTEGER,
}

/** Capital letters, as in top(1). */
const SORT_KEYS: Readonly<Record<string, Sort>> = {
  K: 'key',
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
