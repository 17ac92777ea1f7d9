import type { Subcommand } from '../arguments.ts'
import { jobFilterOptions } from '../job-filter.ts'
import { storeOptions } from '../store-option.ts'

export const JOB_ACTIONS = [
  'count',
  'ls',
  'show',
  'retry',
  'cancel',
  'remove',
  'history',
  'pause',
  'resume',
  'limits',
] as const

export const jobs: Subcommand = {
  name: 'jobs',
  usage:
    '[options] [count | ls | show ID | retry [ID…] | cancel [ID…] | remove [ID…] | history | pause NAME… | resume NAME… | limits]',
  summary: 'Counts, lists, shows, retries, cancels, removes and pauses jobs in PostgreSQL.',
  examples: [
    'holdfast jobs ls --state dead --since 1h --store postgres://localhost/app',
    'holdfast jobs retry --state dead --name mail',
    'holdfast jobs cancel 4711 --reason "sent twice"',
    'holdfast jobs pause mail --until-idle',
  ],
  options: {
    ...jobFilterOptions(),
    limit: { value: 'N', help: 'of `ls`: so many at most, up to 1000; default: 50' },
    after: { value: 'ID', help: 'of `ls`: the page after the one that ends with this job' },
    reason: { value: 'TEXT', help: 'of `cancel`: what is kept with the jobs; required' },
    span: { value: 'DURATION', help: 'of `history`: how far back; default: 1h' },
    step: { value: 'DURATION', help: 'of `history`: the length of a step; default: 5m' },
    'until-idle': { help: 'of `pause`: wait until no job of these names runs' },
    schema: { value: 'NAME', help: 'the schema with the tables; default: holdfast' },
    json: { help: 'one JSON object on each line' },
    ...storeOptions({
      help: 'where the jobs are; default: HOLDFAST_STORE',
      schemes: ['postgres', 'postgresql'],
    }),
  },
  firstWords: JOB_ACTIONS,
  details: `Without a word it counts. \`ls\` shows the newest jobs first. \`retry\`, \`cancel\` and \`remove\` take IDs, or instead of them
at least one of --state, --name, --id, --since and --before. \`history\` counts what was enqueued and what ended, step by step.
Of a name that is paused no job begins, in any process, until \`resume\`. \`limits\` shows the names that are paused or have a limit.
A worker whose job is cancelled is told with its next renewal, and cannot complete it. Exits with 1 when there was nothing to do it to.`,
}
