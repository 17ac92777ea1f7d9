import type { ScheduleState } from '../../jobs/schedules/index.ts'
import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'

/** Written down here, because the entry point of the schedules loads much that the help does not need. */
const STATES = Object.keys({
  active: true,
  paused: true,
  over: true,
} satisfies Record<ScheduleState, true>)

export const SCHEDULE_ACTIONS = ['ls', 'show', 'pause', 'resume', 'remove', 'run'] as const

export const schedules: Subcommand = {
  name: 'schedules',
  usage: '[options] [ls | show ID | pause [ID…] | resume [ID…] | remove [ID…] | run ID]',
  summary: 'Lists, shows, pauses, resumes, removes and runs stored schedules in PostgreSQL.',
  examples: [
    'holdfast schedules --tenant acme --store postgres://localhost/app',
    'holdfast schedules pause --tenant acme',
    'holdfast schedules run report:acme',
  ],
  options: {
    tenant: { value: 'TENANT', isOnce: true, help: 'only schedules of this tenant' },
    job: { value: 'NAME', isOnce: true, help: 'only schedules whose jobs have this name' },
    state: {
      value: 'STATE',
      isOnce: true,
      choices: STATES,
      help: `of \`ls\`: only schedules in this state: ${STATES.join(', ')}`,
    },
    limit: { value: 'N', help: 'of `ls`: so many at most, up to 1000; default: 50' },
    after: { value: 'ID', help: 'of `ls`: the page after the one that ends with this schedule' },
    schema: { value: 'NAME', help: 'the schema with the tables; default: holdfast' },
    json: { help: 'one JSON object on each line' },
    ...storeOptions({
      help: 'where the schedules are; default: HOLDFAST_STORE',
      schemes: ['postgres', 'postgresql'],
    }),
  },
  firstWords: SCHEDULE_ACTIONS,
  details: `Without a word it lists. \`pause\`, \`resume\` and \`remove\` take IDs, or instead of them --tenant or --job. \`run\` enqueues a job now and
replaces no tick. Jobs that are enqueued already stay. Exits with 1 when there was nothing to do it to.`,
}
