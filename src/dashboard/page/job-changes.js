import { post } from './connection.js'
import { ask } from './dialog.js'
import { element, setText } from './elements.js'
import { isFiltered } from './job-filters.js'
import { counted } from './tickets.js'
import { fullTime, runningClock } from './time.js'

/** @import { JobsJson } from '../job-view-json.ts' */

/** What people do to jobs, and the states of jobs to which it can be done. */
const ACTIONS = {
  retry: {
    title: 'Retry',
    done: 'Retried',
    from: new Set(['dead', 'cancelled', 'superseded']),
    warning: 'The jobs are ready again, with all their attempts left.',
  },
  cancel: {
    title: 'Cancel',
    done: 'Cancelled',
    from: new Set(['pending', 'ready', 'blocked', 'delayed', 'running']),
    warning: 'A worker that runs such a job learns of it at its next renewal, and cannot complete the job.',
  },
  remove: {
    title: 'Remove',
    done: 'Removed',
    from: new Set(['completed', 'dead', 'cancelled', 'superseded']),
    warning: 'The jobs are deleted, with their payloads and errors. This cannot be undone.',
  },
}

/** The names of what can be done to a job in this state. */
export function actionsFor(state) {
  return Object.keys(ACTIONS).filter((action) => ACTIONS[action].from.has(state))
}

/** A button for each action. */
export function actionButtons(onAction) {
  const buttons = Object.entries(ACTIONS).map(([action, { title }]) => ({
    action,
    node: element(
      'button',
      { type: 'button', class: action === 'retry' ? '' : 'danger', onclick: () => onAction(action) },
      `${title}…`,
    ),
  }))
  return {
    nodes: buttons.map(({ node }) => node),
    enable(isEnabled) {
      for (const { action, node } of buttons) node.disabled = !isEnabled(action)
    },
  }
}

/**
 * Buttons for the jobs that are ticked, or else for all that fit the filter.
 * @param {{ filterNow: () => object, idsNow: () => string[], onAction: (action: string) => void }} options
 */
export function changeBar({ filterNow, idsNow, onAction }) {
  const scope = element('span', { class: 'scope' })
  const buttons = actionButtons(onAction)
  const node = element('div', { class: 'changes', hidden: true }, scope, ...buttons.nodes)
  return {
    node,
    update() {
      const ids = idsNow()
      const isOfFilter = ids.length === 0 && isFiltered(filterNow())
      setText(
        scope,
        ids.length > 0
          ? `${counted(ids.length, 'job')} selected`
          : isOfFilter
            ? 'All that fit the filter'
            : 'Select jobs, or filter them',
      )
      buttons.enable(() => ids.length > 0 || isOfFilter)
    },
  }
}

/**
 * Asks before jobs are changed, by their ids or by a filter.
 * @param {{
 *   action: string,
 *   ids?: string[],
 *   filter?: Record<string, string>,
 *   counts?: NonNullable<JobsJson['counts']>,
 *   say: (text: string) => void,
 *   onDone?: () => void,
 * }} asked
 */
export function askToChange({ action, ids, filter = {}, counts = [], say, onDone = () => {} }) {
  const { title, done, warning } = ACTIONS[action]
  const fixed = fixedTimes(filter)
  const isOne = ids?.length === 1
  ask({
    title: isOne ? `${title} this job?` : `${title} these jobs?`,
    facts: ids === undefined ? filterFacts(action, { filter, fixed, counts }) : [idFact(ids)],
    warning,
    reason: action === 'cancel' ? 'Reason, which is kept with the job' : undefined,
    typed: isOne ? undefined : action,
    action: title,
    say,
    async run(reason) {
      const what = ids === undefined ? { filter: fixed } : { ids }
      const { changed } = await post('api/jobs', { action, ...what, reason })
      onDone()
      return changed === 0 ? 'No job could be changed so.' : `${done}: ${counted(changed, 'job')}.`
    },
  })
}

/** @returns {readonly [string, string]} */
function idFact(ids) {
  const shown = ids.slice(0, 10).join(', ')
  const text = ids.length > 10 ? `${counted(ids.length, 'job')}: ${shown}, …` : shown
  return [ids.length === 1 ? 'Job' : 'Jobs', text]
}

/** The filter with times that do not go on, so that no job is changed which came after the question. */
function fixedTimes(filter) {
  const { id = '', since = '', before = '' } = filter
  const times = { since: instantOf(since), before: instantOf(before) }
  const now = instantOf('0s')
  const isOpen = before === '' || Date.parse(times.before) > Date.parse(now)
  return { ...filter, ...times, ...(isOpen && id === '' && isFiltered(filter) && { before: now }) }
}

/** How long ago, as an instant of the server. A text that nobody can read stays, and the server refuses it. */
function instantOf(ago) {
  const [, amount, unit = ''] = /^(\d+(?:\.\d+)?)(ms|[smhd])$/.exec(ago) ?? []
  return amount === undefined ? ago : new Date(runningClock() - Number(amount) * UNITS_MS[unit]).toISOString()
}

/** The filter in words, and how many jobs it has now if the counts can tell. */
function filterFacts(action, { filter, fixed, counts }) {
  const given = Object.entries(fixed).filter(([, text]) => text !== '')
  /** @type {(readonly [string, string])[]} */
  const facts = given.map(([name, text]) => [FILTER_TITLES[name], TIMES.has(name) ? timeText(text) : text])
  if (filter.id !== '' || filter.since !== '' || filter.before !== '') return facts
  const fits = counts.filter(
    ({ name, state }) =>
      (filter.name === '' || name === filter.name) &&
      (filter.state === '' || state === filter.state) &&
      ACTIONS[action].from.has(state),
  )
  const all = fits.reduce((sum, { count }) => sum + count, 0)
  facts.push(['Jobs', `${all.toLocaleString('en')} at this moment`])
  return facts
}

function timeText(text) {
  const at = Date.parse(text)
  return Number.isNaN(at) ? text : fullTime(at)
}

const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }
const TIMES = new Set(['since', 'before'])
const FILTER_TITLES = {
  state: 'State',
  name: 'Name',
  id: 'Ids',
  since: 'Enqueued since',
  before: 'Enqueued before',
}
