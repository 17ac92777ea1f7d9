import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'

export const doctor: Subcommand = {
  name: 'doctor',
  usage: '[options]',
  summary: 'Looks at the store, and says what may break locks there and what to change.',
  examples: ['holdfast doctor', 'holdfast doctor --store redlock:redis://a,redis://b,redis://c'],
  options: {
    'read-only': { help: 'the user may only read, or the server is a replica: check what can be seen' },
    json: { help: 'one JSON object on one line' },
    ...storeOptions(),
  },
  details: 'Exits with 1 when there is a problem; warnings alone are no reason to.',
}
