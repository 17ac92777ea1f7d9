import { element, reconcile, setAttribute, setStrange, setText } from './elements.js'
import { askToChange, changeBar } from './job-changes.js'
import { filterOf, isFiltered, jobFilters } from './job-filters.js'
import { jobCounts, jobSteps } from './job-numbers.js'
import { listBar, pageButton } from './list-bar.js'
import { addressOf } from './places.js'
import { selection } from './selection.js'
import { cell, table, tableBody } from './tickets.js'
import { showNoTime, showSince, showTime, showUntil } from './time.js'
/** @import { JobRowJson, JobsJson } from '../job-view-json.ts' */
/** @import { ViewJson } from '../view-json.ts' */

/** The jobs, newest first, a page at a time. Above them their numbers, now and over time. */
export function jobsView({ place, go, say }) {
  /** @type {NonNullable<JobsJson['counts']>} */
  let known = []
  const counts = jobCounts()
  const steps = jobSteps({ span: place.span ?? '1h', onSpan: (span) => go({ span }) })
  const filters = jobFilters(place, (changes) => {
    // Nobody sees any more what was ticked.
    chosen.clear()
    go({ ...changes, after: '' })
    bar.update()
  })
  const chosen = selection({ one: 'job', onChange: () => bar.update() })
  const bar = changeBar({
    filterNow: () => filterOf(place),
    idsNow: () => chosen.keys,
    onAction: (action) => {
      const ids = chosen.keys
      const what = ids.length > 0 ? { ids } : { filter: filterOf(place), counts: known }
      askToChange({ action, ...what, say, onDone: () => chosen.clear() })
    },
  })
  const pager = cursorPager(place, go)
  const query = () => ({
    view: 'jobs',
    ...filterOf(place),
    span: place.span ?? '1h',
    after: cursorsIn(place).at(-1) ?? '',
  })
  const rows = tableBody()
  const problem = element('p', { class: 'problem', role: 'status' })
  const empty = element('p', { class: 'empty' })
  const grid = table({
    caption: 'Jobs, newest first',
    className: 'jobs',
    columns: [
      { title: chosen.all, name: 'select' },
      { title: 'Id', name: 'id' },
      { title: 'Name', name: 'key' },
      { title: 'State', name: 'mode' },
      { title: 'Failed', name: 'failed', align: 'end' },
      { title: 'Enqueued', name: 'held', align: 'end' },
      { title: 'Since, or due', name: 'left', align: 'end' },
      { title: 'Worker', name: 'holder' },
      { title: 'Error', name: 'error' },
    ],
    rows,
  })
  const content = element(
    'div',
    {},
    counts.node,
    steps.node,
    filters.node,
    listBar({ pager: pager.node, actions: [bar.node], query }),
    grid,
  )
  return {
    node: element('div', {}, problem, content, empty),
    query,
    /** @param {ViewJson & JobsJson} view */
    update({ site, jobs = [], next, message, ...numbers }) {
      content.hidden = !site.hasJobs
      setText(empty, nothing({ site, place, isEmpty: jobs.length === 0 }))
      if (!site.hasJobs) return
      known = numbers.counts ?? []
      setText(problem, message ?? '')
      counts.update(numbers.counts)
      steps.update(numbers.steps)
      filters.update(known)
      bar.node.hidden = !site.allowJobChanges
      bar.update()
      reconcile(
        rows,
        jobs,
        ({ id }) => id,
        (job) => jobRow(job, chosen),
      )
      chosen.show(
        grid,
        jobs.map(({ id }) => id),
        site.allowJobChanges,
      )
      grid.hidden = jobs.length === 0
      pager.update(next ?? null)
    },
  }
}

function nothing({ site, place, isEmpty }) {
  if (!site.hasJobs) return 'This dashboard shows no jobs.'
  if (!isEmpty) return ''
  return isFiltered(filterOf(place)) ? 'No job fits the filter.' : 'There are no jobs.'
}

/** The pages that were passed on the way: each begins after a job. */
function cursorsIn({ after = '' }) {
  return after.split(',').filter((id) => id !== '')
}

/** New jobs do not move the pages, as each page begins after a job. */
function cursorPager(place, go) {
  let next = null
  const button = (title, onclick) => element('button', { type: 'button', onclick }, title)
  const newest = button('Newest', () => go({ after: '' }))
  const back = pageButton('Previous', '[', () => go({ after: cursorsIn(place).slice(0, -1).join(',') }))
  const forth = pageButton('Next', ']', () => go({ after: [...cursorsIn(place), next].join(',') }))
  const text = element('span', { class: 'page' })
  return {
    node: element('nav', { class: 'pager', 'aria-label': 'Pages' }, newest, back, text, forth),
    update(after) {
      next = after
      const passed = cursorsIn(place).length
      setText(text, `page ${passed + 1}`)
      newest.disabled = back.disabled = passed === 0
      forth.disabled = after === null
    },
  }
}

function jobRow({ id, name }, chosen) {
  const link = element('a', { href: addressOf({ view: 'job', id }) }, id)
  const title = cell('key')
  setStrange(title, name)
  const state = cell('mode', { 'data-title': 'state' })
  const failed = cell('failed', { 'data-title': 'failed', 'data-align': 'end' })
  const enqueued = cell('held', { 'data-title': 'enqueued', 'data-align': 'end' })
  const since = cell('left', { 'data-title': 'since', 'data-align': 'end' })
  const worker = cell('holder')
  const error = cell('error')
  const cells = [title, state, failed, enqueued, since, worker, error]
  return {
    node: element('tr', { role: 'row' }, chosen.cellOf(id, id), cell('id', {}, link), ...cells),
    /** @param {JobRowJson} job */
    update(job) {
      setText(state, job.state)
      setAttribute(state, 'data-state', job.state)
      setText(failed, `${job.failures} of ${job.maxAttempts}`)
      showSince(enqueued, job.enqueuedAt)
      showState(since, job)
      setStrange(worker, job.worker ?? '')
      setStrange(error, job.error ?? '')
    },
  }
}

/** @param {HTMLElement} node @param {JobRowJson} job */
function showState(node, { state, startedAt, dueAt, endedAt }) {
  if (endedAt !== undefined) {
    showNoTime(node)
    showTime(node, endedAt)
  } else if (state === 'running' && startedAt !== undefined) showSince(node, startedAt)
  else if (state === 'delayed' && dueAt !== undefined) showUntil(node, dueAt, { over: 'now' })
  else showNoTime(node)
}
