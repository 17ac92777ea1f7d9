import { element, setAttribute } from './elements.js'
import { cell } from './tickets.js'

/** The rows of a table that are ticked. They stay ticked on other pages of the list. */
export function selection({ one, onChange }) {
  const chosen = new Set()
  let shown = []
  const all = element('input', {
    type: 'checkbox',
    'aria-label': `Select all on this page`,
    onchange: () => choose(shown, all.checked),
  })
  /** @type {Map<string, HTMLInputElement>} */
  const boxes = new Map()

  function choose(keys, isChosen) {
    for (const key of keys) {
      if (isChosen) chosen.add(key)
      else chosen.delete(key)
    }
    draw()
    onChange()
  }

  function draw() {
    for (const [key, box] of boxes) box.checked = chosen.has(key)
    const some = shown.some((key) => chosen.has(key))
    all.checked = some && shown.every((key) => chosen.has(key))
    all.indeterminate = some && !all.checked
  }

  return {
    /** For the head of the table. */
    all,
    get keys() {
      return [...chosen]
    },
    choose,
    clear: () => choose([...chosen], false),
    /** @param {HTMLElement} table */
    show(table, keys, isAllowed) {
      setAttribute(table, 'data-select', isAllowed ? 'true' : undefined)
      shown = keys
      for (const key of boxes.keys()) if (!keys.includes(key)) boxes.delete(key)
      draw()
    },
    /** The cell of a row. */
    cellOf(key, name) {
      const box = element('input', {
        type: 'checkbox',
        'aria-label': `Select ${one} ${name}`,
        onchange: () => choose([key], box.checked),
      })
      box.checked = chosen.has(key)
      boxes.set(key, box)
      return cell('select', {}, box)
    },
  }
}
