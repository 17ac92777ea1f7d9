import { drawn, element, reconcile, setAttribute, setStrange, setText } from './elements.js'
import { JOB_STATES } from './job-filters.js'
import { addressOf } from './places.js'
import { cell, choice, table, tableBody } from './tickets.js'
import { age, clockTime } from './time.js'
/** @import { JobStepJson, JobsJson } from '../job-view-json.ts' */

/** How many jobs there are: the sums by state, each a link to its jobs, and below them the same by name, folded. */
export function jobCounts() {
  const sums = JOB_STATES.map((state) => {
    const number = element('strong')
    const link = element('a', { href: addressOf({ view: 'jobs', state }) }, number, ' ', state)
    return { state, number, link }
  })
  const rows = tableBody()
  const byName = table({
    caption: 'Jobs by name',
    className: 'job-counts',
    columns: [
      { title: 'Name', name: 'key' },
      ...JOB_STATES.map((state) => ({ title: state, name: 'count', align: 'end' })),
      { title: 'oldest open', name: 'oldest', align: 'end' },
    ],
    rows,
  })
  const folded = element('details', {}, element('summary', {}, 'By name'), byName)
  return {
    node: element(
      'section',
      { 'aria-label': 'Numbers of jobs' },
      element('p', { class: 'sums' }, ...sums.map(({ link }) => link)),
      folded,
    ),
    /** @param {JobsJson['counts']} counts */
    update(counts) {
      for (const { state, number, link } of sums) {
        const count = (counts ?? [])
          .filter((each) => each.state === state)
          .reduce((sum, each) => sum + each.count, 0)
        setText(number, counts === undefined ? '…' : count.toLocaleString('en'))
        setAttribute(link, 'data-some', count > 0 ? state : undefined)
      }
      const named = byNameOf(counts ?? [])
      reconcile(rows, named, ({ name }) => name, countRow)
      folded.hidden = named.length === 0
    },
  }
}

function byNameOf(counts) {
  const names = new Map()
  for (const { name, state, count, oldestMs } of counts) {
    const row = names.get(name) ?? { name, oldestMs: undefined }
    row[state] = count
    if (OPEN.has(state)) row.oldestMs = Math.max(oldestMs, row.oldestMs ?? 0)
    names.set(name, row)
  }
  return [...names.values()]
}

function countRow({ name }) {
  const link = element('a', { href: addressOf({ view: 'jobs', name }) })
  setStrange(link, name)
  const numbers = JOB_STATES.map((state) => {
    const number = element('a', { href: addressOf({ view: 'jobs', name, state }) })
    return { state, number, cell: cell('count', { 'data-title': state, 'data-align': 'end' }, number) }
  })
  const oldest = cell('oldest', { 'data-title': 'oldest open', 'data-align': 'end' })
  return {
    node: element('tr', { role: 'row' }, cell('key', {}, link), ...numbers.map((each) => each.cell), oldest),
    update(row) {
      for (const { state, number, cell: parent } of numbers) {
        setText(number, (row[state] ?? 0).toLocaleString('en'))
        setAttribute(parent, 'data-some', row[state] > 0 ? state : undefined)
      }
      setText(oldest, row.oldestMs === undefined ? '–' : age(row.oldestMs))
    },
  }
}

/** What was enqueued, completed and dead over time: a group of bars for each step. */
export function jobSteps({ span, onSpan }) {
  const picture = element('div', { class: 'picture steps' })
  const sums = element('p', { class: 'legend' })
  const node = element(
    'section',
    { 'aria-label': 'Jobs over time' },
    element(
      'div',
      { class: 'heading' },
      sums,
      choice('Over', span, SPANS, (chosen) => onSpan(chosen)),
    ),
    picture,
  )
  let drawnFor
  return {
    node,
    /** @param {JobsJson['steps'] | undefined} counted */
    update(counted) {
      const steps = counted ?? []
      // Drawn anew only where something differs, as the pointer may rest on a bar to read its title.
      const name = JSON.stringify([counted, picture.clientWidth])
      if (name === drawnFor) return
      drawnFor = name
      const texts = SERIES.map(
        (series) => `${counted === undefined ? '…' : sumOf(steps, series).toLocaleString('en')} ${series}`,
      )
      sums.replaceChildren(
        ...SERIES.map((series, index) => element('span', { 'data-series': series }, texts[index])),
      )
      picture.replaceChildren(barsOf(steps, Math.max(200, picture.clientWidth - 24), texts.join(', ')))
    },
  }
}

function sumOf(steps, series) {
  return steps.reduce((sum, step) => sum + step[series], 0)
}

/** @param {readonly JobStepJson[]} steps */
function barsOf(steps, width, label) {
  const most = Math.max(1, ...steps.flatMap((step) => SERIES.map((series) => step[series])))
  const room = width / Math.max(1, steps.length)
  const bar = Math.max(1, (room - 1) / SERIES.length)
  const picture = drawn('svg', {
    ...{ width, height: HEIGHT + AXIS, viewBox: `0 0 ${width} ${HEIGHT + AXIS}` },
    ...{ role: 'img', 'aria-label': label },
  })
  for (const [index, step] of steps.entries()) {
    const text = SERIES.map((series) => `${step[series]} ${series}`).join(', ')
    const group = drawn('g', {}, drawn('title', {}, `from ${clockTime(step.fromAt)}: ${text}`))
    // Invisible, so that the title is there above short bars, too.
    group.append(drawn('rect', { x: index * room, y: 0, width: room, height: HEIGHT, class: 'behind' }))
    for (const [at, series] of SERIES.entries()) {
      if (step[series] === 0) continue
      const height = Math.max(2, (step[series] / most) * HEIGHT)
      const place = { x: (index * room + at * bar).toFixed(1), y: (HEIGHT - height).toFixed(1) }
      group.append(
        drawn('rect', { ...place, width: bar.toFixed(1), height: height.toFixed(1), class: series }),
      )
    }
    picture.append(group)
  }
  picture.append(drawn('line', { x1: 0, x2: width, y1: HEIGHT, y2: HEIGHT, class: 'grid' }))
  for (const [index, { fromAt }] of steps.entries()) {
    const isLabelled = index % Math.ceil(80 / room) === 0 && index * room < width - 60
    if (isLabelled)
      picture.append(drawn('text', { x: index * room, y: HEIGHT + 14, class: 'step' }, clockTime(fromAt)))
  }
  return picture
}

const OPEN = new Set(['pending', 'ready', 'blocked', 'delayed', 'running'])
const SERIES = /** @type {const} */ (['enqueued', 'completed', 'dead'])
const SPANS = [
  ['1h', 'the last hour'],
  ['6h', '6 hours'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
]
const HEIGHT = 64
const AXIS = 18
