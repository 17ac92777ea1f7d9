import { element, reconcile, setAttribute } from './elements.js'
import { choice } from './tickets.js'
/** @import { JobsJson } from '../job-view-json.ts' */

export const JOB_STATES = [
  ...['pending', 'ready', 'blocked', 'delayed', 'running'],
  ...['completed', 'dead', 'cancelled', 'superseded'],
]

/** The filter of the open place, as the server takes it. */
export function filterOf({ state = '', name = '', id = '', since = '', before = '' }) {
  return { state, name, id, since, before }
}

export function isFiltered(filter) {
  return Object.values(filter).some((text) => text !== '')
}

/** Fields for state, name, id and time. */
export function jobFilters(place, onChange) {
  const { state, since, before } = filterOf(place)
  const isBetween = before !== '' || since.includes('-')
  const names = element('datalist', { id: 'job-names' })
  const fields = [
    textField({ name: 'name', title: 'Name', id: 'search', list: 'job-names' }, place, onChange),
    textField({ name: 'id', title: 'Ids' }, place, onChange),
  ]
  const choose = () => onChange({ since: from.time(), before: to.time() })
  const from = timeField('From', since.includes('-') ? since : '', choose)
  const to = timeField('To', before, choose)
  const between = element('span', { class: 'between' }, from.node, to.node)
  between.hidden = !isBetween
  const times = choice('Enqueued', isBetween ? BETWEEN : since, TIMES, (time) => {
    between.hidden = time !== BETWEEN
    if (time === BETWEEN) choose()
    else onChange({ since: time, before: '' })
  })
  const states = choice('State', state, [['', 'all'], ...JOB_STATES.map((each) => [each, each])], (chosen) =>
    onChange({ state: chosen }),
  )
  return {
    node: element(
      'form',
      { class: 'tools', role: 'search', onsubmit: (event) => event.preventDefault() },
      ...fields,
      names,
      states,
      times,
      between,
    ),
    /** @param {NonNullable<JobsJson['counts']>} counts */
    update(counts) {
      const known = [...new Set(counts.map(({ name }) => name))].slice(0, MOST_NAMES)
      reconcile(
        names,
        known,
        (name) => name,
        (name) => ({ node: element('option', { value: name }), update() {} }),
      )
    },
  }
}

/** @param {{ name: string, title: string, id?: string, list?: string }} field */
function textField({ name, title, id, list }, place, onChange) {
  let typing
  const field = element('input', {
    ...{ type: 'search', id, list, autocomplete: 'off', spellcheck: 'false', placeholder: title },
    'aria-label': title,
    oninput: () => {
      clearTimeout(typing)
      typing = setTimeout(() => onChange({ [name]: field.value.trim() }), 250)
    },
  })
  field.value = place[name] ?? ''
  return field
}

/** A time of day in the browser's zone. The server gets it in UTC. */
function timeField(title, time, onTime) {
  const field = element('input', { type: 'datetime-local', onchange: onTime })
  setAttribute(field, 'aria-label', `Enqueued ${title.toLowerCase()}`)
  if (time !== '' && Number.isFinite(Date.parse(time))) field.value = localText(new Date(time))
  return {
    node: element('label', {}, element('span', {}, title), field),
    time: () => (field.value === '' ? '' : new Date(field.value).toISOString()),
  }
}

function localText(date) {
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000)
  return shifted.toISOString().slice(0, 16)
}

const BETWEEN = 'between'
const TIMES = [
  ['', 'any time'],
  ['15m', 'last 15 minutes'],
  ['1h', 'last hour'],
  ['24h', 'last 24 hours'],
  ['168h', 'last 7 days'],
  [BETWEEN, 'between…'],
]
const MOST_NAMES = 500
