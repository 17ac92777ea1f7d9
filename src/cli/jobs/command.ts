import type { JobState } from '../../jobs/index.ts'
import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'

/** Written down here, because the entry point of the jobs loads much that the help does not need. */
const STATES = Object.keys({
  ready: true,
  blocked: true,
  delayed: true,
  running: true,
  completed: true,
  dead: true,
  cancelled: true,
  superseded: true,
} satisfies Record<JobState, true>)

export const JOB_ACTIONS = ['count', 'list', 'show', 'retry', 'cancel', 'remove'] as const

export const jobs: Subcommand = {
  name: 'jobs',
  usage: '[options] [count | list | show ID | retry ID… | cancel ID | remove ID…]',
  summary: 'Counts, lists, shows, retries, cancels and removes jobs in PostgreSQL.',
  examples: [
    'holdfast jobs list --state dead --store postgres://localhost/app',
    'holdfast jobs retry --dead --name mail',
    'holdfast jobs cancel 4711 --reason "sent twice"',
  ],
  options: {
    state: { value: 'STATE', choices: STATES, help: `of \`list\`: ${STATES.join(', ')}` },
    name: { value: 'NAME', help: 'of `list` and `retry --dead`: only jobs of this name' },
    limit: { value: 'N', help: 'of `list`: so many at most; default: 50' },
    dead: { help: 'of `retry`: every dead job, instead of IDs' },
    reason: { value: 'TEXT', help: 'of `cancel`: what is kept with the job; required' },
    schema: { value: 'NAME', help: 'the schema with the tables; default: holdfast' },
    json: { help: 'one JSON object on each line' },
    ...storeOptions({
      help: 'where the jobs are; default: HOLDFAST_STORE',
      schemes: ['postgres', 'postgresql'],
    }),
  },
  firstWords: JOB_ACTIONS,
  details: `Without a word it counts. A worker whose job is cancelled is told with its next renewal, and cannot complete it.
Exits with 1 when there was nothing to do it to.`,
}
