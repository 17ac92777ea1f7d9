import { copyButton } from './copy.js'
import { factList } from './dialog.js'
import { element, reconcile, setAttribute, setLines, setStrange, setText } from './elements.js'
import { actionButtons, actionsFor, askToChange } from './job-changes.js'
import { crumb } from './list-bar.js'
import { age, fullTime } from './time.js'
/** @import { JobDetailsJson, JobJson } from '../job-view-json.ts' */
/** @import { ViewJson } from '../view-json.ts' */

/** One job: its facts, its payload, and what became of its attempts. */
export function jobView({ place, say, list }) {
  const { id } = place
  const title = element('h2', { class: 'strange' })
  const state = element('p', { class: 'state' })
  const problem = element('p', { class: 'problem', role: 'status' })
  const facts = element('div', { class: 'facts' })
  const payload = element('pre', { class: 'lines', tabindex: 0, 'aria-label': 'Payload' })
  const error = element('pre', { class: 'lines', tabindex: 0, 'aria-label': 'Error' })
  const ownError = element('section', {}, element('h3', {}, 'Error'), error)
  const attempts = element('div')
  const failed = element('section', {}, element('h3', {}, 'Failed attempts'), attempts)
  const buttons = actionButtons((action) => askToChange({ action, ids: [id], say }))
  const changes = element('div', { class: 'changes', hidden: true }, ...buttons.nodes)
  let text = ''
  const content = element(
    'div',
    {},
    facts,
    ownError,
    failed,
    element(
      'section',
      {},
      element(
        'div',
        { class: 'heading' },
        element('h3', {}, 'Payload'),
        copyButton('payload', () => text, say),
      ),
      payload,
    ),
  )
  return {
    node: element(
      'div',
      {},
      crumb(list, 'All jobs'),
      element('div', { class: 'heading' }, title, changes),
      state,
      problem,
      content,
    ),
    query: () => ({ view: 'job', id }),
    /** @param {ViewJson & JobJson} view */
    update({ site, job, message }) {
      setText(problem, message ?? '')
      content.hidden = job === undefined || job === null
      changes.hidden = !site.allowJobChanges || content.hidden
      if (job === undefined || job === null) {
        setStrange(title, `job ${id}`)
        return setText(state, job === null ? 'There is no job of this id (any more).' : '')
      }
      setStrange(title, job.name)
      setText(state, job.state)
      setAttribute(state, 'data-state', job.state)
      const possible = actionsFor(job.state)
      buttons.enable((action) => possible.includes(action))
      showFacts(facts, job)
      text = job.payload
      setLines(payload, job.payload)
      // The error of a failed attempt is shown with that attempt.
      const isOwn = job.error !== undefined && job.failedAttempts.at(-1)?.error !== job.error
      ownError.hidden = !isOwn
      setLines(error, isOwn ? job.error : '')
      failed.hidden = job.failedAttempts.length === 0
      reconcile(
        attempts,
        job.failedAttempts.toReversed(),
        ({ attempt }) => attempt,
        (attempt) => attemptNode(attempt, say),
      )
    },
  }
}

/** @param {HTMLElement} node @param {JobDetailsJson} job */
function showFacts(node, job) {
  const time = (at) => (at === undefined ? undefined : fullTime(at))
  /** @type {[string, string | undefined][]} */
  const facts = [
    ['id', job.id],
    ['attempt', `${job.attempt}, ${job.failures} of ${job.maxAttempts} failed`],
    ['priority', String(job.priority)],
    ['key', job.key],
    ['group', job.group],
    ['worker', job.worker],
    ['enqueued', time(job.enqueuedAt)],
    ['started', time(job.startedAt)],
    [job.state === 'running' ? 'lease until' : 'due', time(job.dueAt)],
    ['ended', time(job.endedAt)],
    ['ran for', lasted(job)],
  ]
  const known = facts.flatMap(([name, text]) => (text === undefined ? [] : [[name, text]]))
  const shown = JSON.stringify(known)
  if (node.dataset.shows === shown) return
  node.dataset.shows = shown
  node.replaceChildren(factList(/** @type {[string, string][]} */ (known)))
}

/** @param {JobDetailsJson} job */
function lasted({ startedAt, endedAt }) {
  return startedAt === undefined || endedAt === undefined ? undefined : age(endedAt - startedAt)
}

function attemptNode({ attempt, worker, startedAt, endedAt, error }, say) {
  const stack = element('pre', { class: 'lines', tabindex: 0, 'aria-label': `Error of attempt ${attempt}` })
  setLines(stack, error)
  const summary = element('summary')
  const by = worker === undefined ? '' : ` by ${worker}`
  setStrange(
    summary,
    `attempt ${attempt} failed at ${fullTime(endedAt)}, ${age(endedAt - startedAt)} after its claim${by}`,
  )
  const copyError = copyButton(`the error of attempt ${attempt}`, () => error, say)
  return { node: element('details', { open: true }, summary, copyError, stack), update() {} }
}
