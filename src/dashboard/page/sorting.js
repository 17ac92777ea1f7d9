import { element, setAttribute } from './elements.js'
import { choice } from './tickets.js'

/**
 * Sorts a list by its columns: by a click on a title, and the other way round by a second click. On a phone, where no titles are
 * shown, by a choice. `first` is the column that the list is sorted by before anybody chooses.
 */
export function sorting({ place, go, columns, first }) {
  const heads = new Map()
  const able = columns.filter(({ sort }) => sort !== undefined)
  const sortBy = () => place.sort || first
  const select = choice(
    'Sort by',
    sortBy(),
    [
      // A list that no column sorts before somebody chooses.
      ...(first === '' ? [['', 'idle last']] : []),
      ...able.map(({ sort, title }) => [sort, title.toLowerCase()]),
    ],
    (sort) => show({ sort, reversed: '' }),
  )
  const reverse = element(
    'button',
    {
      type: 'button',
      class: 'reverse',
      'aria-label': 'The other way round',
      onclick: () => turn(),
    },
    '⇅',
  )

  function show(changes) {
    go({ ...changes, page: 0 })
    draw()
  }

  function turn() {
    show({ reversed: place.reversed === 'true' ? '' : 'true' })
  }

  function draw() {
    select.querySelector('select').value = sortBy()
    for (const [{ sort, align, isLeastFirst = align !== 'end' }, head] of heads) {
      const isUp = isLeastFirst !== (place.reversed === 'true')
      setAttribute(head, 'aria-sort', sort !== sortBy() ? undefined : isUp ? 'ascending' : 'descending')
    }
  }

  return {
    node: element('div', { class: 'sorting' }, select, reverse),
    /** The query of the chosen order. */
    query: () => ({ sort: place.sort ?? '', reversed: place.reversed ?? '' }),
    titleOf(column) {
      const { title, name, align, sort } = column
      const choose = () =>
        show({ sort, reversed: sort === sortBy() && place.reversed !== 'true' ? 'true' : '' })
      const button = element('button', { type: 'button', class: 'title', onclick: choose }, title)
      const head = element(
        'th',
        { scope: 'col', role: 'columnheader', class: name, 'data-align': align },
        button,
      )
      heads.set(column, head)
      draw()
      return head
    },
    reverse: turn,
    /** Sorts by the column beside. */
    move(step) {
      const at = able.findIndex(({ sort }) => sort === sortBy())
      const next = able[Math.max(0, Math.min(at + step, able.length - 1))]
      if (next !== undefined) show({ sort: next.sort, reversed: '' })
    },
  }
}
