import type { Subcommand } from '../arguments.ts'
import { jobFilterOptions } from '../job-filter.ts'
import { storeOptions } from '../store-option.ts'
import { SORTS } from './sorts.ts'

export const top: Subcommand = {
  name: 'top',
  usage: '[options]',
  summary:
    'Shows who holds what and who waits, or the jobs, live; in pipes and files one look after the other.',
  examples: [
    'holdfast top --prefix job: --sort longest',
    'holdfast top --once --store redis://cache',
    'holdfast top --jobs --state dead --store postgres://localhost/app',
  ],
  options: {
    interval: { short: 'd', value: 'DURATION', help: 'from one look to the next; default: 1s' },
    prefix: { short: 'p', value: 'PREFIX', help: 'only keys that begin with it' },
    sort: { short: 'o', value: 'COLUMN', choices: SORTS, help: `${SORTS.join(', ')}; default: waiting` },
    reverse: { short: 'r', help: 'sort the other way round' },
    jobs: { help: 'show the jobs in PostgreSQL instead of the locks' },
    ...jobFilterOptions({ when: 'with --jobs: ' }),
    schema: { value: 'NAME', help: 'with --jobs: the schema with the tables; default: holdfast' },
    batch: { short: 'b', help: 'print one look after the other, also in a terminal' },
    count: { short: 'n', value: 'N', help: 'end after so many looks; implies --batch' },
    once: { help: 'the same as --count 1' },
    json: { help: 'one JSON object a look and line; implies --batch' },
    ...storeOptions(),
  },
  details: `In the terminal h shows the keys, and q quits. Without a terminal, or with
--batch, it prints looks until it is ended, as top -b does; with --count it
exits with 69 when the store goes away before the last of them.`,
}
