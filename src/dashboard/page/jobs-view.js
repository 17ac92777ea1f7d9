import { element, reconcile, setAttribute, setStrange, setText } from './elements.js'
import { cell, showCount, table, tableBody } from './tickets.js'
import { age, showNoTime, showSince, showUntil } from './time.js'
/** @import { SiteJson } from '../view-json.ts' */

/** The number of jobs by name and state, and the jobs that run, wait for another attempt or are dead. */
export function jobsView() {
  const counts = tableBody()
  const jobs = tableBody()
  const problem = element('p', { class: 'problem', role: 'status' })
  const empty = element('p', { class: 'empty' })
  const countTable = table({
    caption: 'Jobs by name',
    className: 'job-counts',
    columns: [
      { title: 'Name', name: 'key' },
      ...STATES.map((state) => ({ title: state, name: 'count', align: 'end' })),
      { title: 'oldest open', name: 'oldest', align: 'end' },
    ],
    rows: counts,
  })
  const jobTable = table({
    caption: 'Jobs that run, are delayed or dead',
    className: 'jobs',
    columns: [
      { title: 'Job', name: 'key' },
      { title: 'State', name: 'mode' },
      { title: 'Failed', name: 'failed', align: 'end' },
      { title: 'Worker', name: 'holder' },
      { title: 'Runs', name: 'held', align: 'end' },
      { title: 'Due', name: 'left', align: 'end' },
      { title: 'Error', name: 'error' },
    ],
    rows: jobs,
  })
  const title = element('h3', {}, 'Running, delayed and dead')
  return {
    node: element('div', {}, problem, empty, countTable, title, jobTable),
    query: () => ({ view: 'jobs' }),
    update({ counts: known = [], jobs: open = [], site, jobsAt, jobsMessage }) {
      setText(problem, jobsMessage ?? '')
      const rows = byName(known)
      reconcile(counts, rows, ({ name }) => name, countRow)
      reconcile(jobs, open, ({ id }) => id, jobRow)
      countTable.hidden = rows.length === 0
      title.hidden = jobTable.hidden = open.length === 0
      setText(empty, rows.length > 0 || jobsMessage !== undefined ? '' : nothing(site, jobsAt))
    },
  }
}

/**
 * @param {SiteJson} site
 * @param {number | undefined} jobsAt
 */
function nothing(site, jobsAt) {
  if (!site.hasJobs) return 'This dashboard shows no jobs.'
  return jobsAt === undefined ? 'Counting…' : 'There are no jobs.'
}

function byName(counts) {
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
  const title = cell('key')
  setStrange(title, name)
  const cells = STATES.map((state) => cell('count', { 'data-title': state, 'data-align': 'end' }))
  const oldest = cell('oldest', { 'data-title': 'oldest open', 'data-align': 'end' })
  return {
    node: element('tr', { role: 'row' }, title, ...cells, oldest),
    update(row) {
      for (const [index, state] of STATES.entries()) {
        showCount(cells[index], row[state] ?? 0)
        setAttribute(cells[index], 'data-some', row[state] > 0 ? state : undefined)
      }
      setText(oldest, row.oldestMs === undefined ? '–' : age(row.oldestMs))
    },
  }
}

function jobRow({ id, name }) {
  const title = cell('key')
  setStrange(title, `${name} ${id}`)
  const state = cell('mode', { 'data-title': 'state' })
  const failed = cell('failed', { 'data-title': 'failed', 'data-align': 'end' })
  const worker = cell('holder')
  const runs = cell('held', { 'data-title': 'runs', 'data-align': 'end' })
  const due = cell('left', { 'data-title': 'due', 'data-align': 'end' })
  const error = cell('error')
  return {
    node: element('tr', { role: 'row' }, title, state, failed, worker, runs, due, error),
    update(job) {
      setText(state, job.state)
      setAttribute(state, 'data-state', job.state)
      setText(failed, `${job.failures} of ${job.maxAttempts}`)
      setStrange(worker, job.worker ?? '')
      setStrange(error, job.error ?? '')
      if (job.state === 'running' && job.startedAt !== undefined) showSince(runs, job.startedAt)
      else showNoTime(runs)
      if (job.dueAt === undefined || job.state === 'dead') showNoTime(due)
      else showUntil(due, job.dueAt, { over: job.state === 'delayed' ? 'now' : 'over' })
    },
  }
}

const STATES = ['ready', 'blocked', 'delayed', 'running', 'completed', 'dead', 'cancelled', 'superseded']
const OPEN = new Set(['ready', 'blocked', 'delayed', 'running'])
