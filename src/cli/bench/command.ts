import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'

export const bench: Subcommand = {
  name: 'bench',
  usage: '[options]',
  summary: 'Measures what locks cost on the store, as seen from this machine.',
  examples: ['holdfast bench --store redis://cache', 'holdfast bench --for 10s --waiters 1000 --json'],
  options: {
    for: { value: 'DURATION', help: 'how long each row of the table is measured; default: 2s' },
    waiters: { value: 'N', help: 'how many calls wait for the one key; default: 100' },
    flight: { value: 'N', help: 'how many free keys are taken at a time; default: 64' },
    leases: { value: 'N', help: 'how many leases are renewed at a time; default: 100' },
    json: { help: 'one JSON object on one line, also after Ctrl-C' },
    ...storeOptions(),
  },
  details: `It keeps the store as busy as one process can, so other work of the store is
slower meanwhile. All keys begin with holdfast-bench and are released afterwards.
Two clients of one process take part, each with its own connections. The first
row is the least that a request costs: a question about a free key.`,
}
