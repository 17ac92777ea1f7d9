import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'

export const init: Subcommand = {
  name: 'init',
  usage: '[options]',
  summary: 'Says that the servers of a redlock: store are new, so that the first lock need not wait.',
  examples: [
    'holdfast init --store redlock:redis://a,redis://b,redis://c',
    'holdfast init -w 1m --store-file redlock-url',
  ],
  options: {
    wait: { short: 'w', value: 'DURATION', help: 'for servers that are being started; default: 10s' },
    json: { help: 'one JSON object on one line' },
    ...storeOptions({ help: 'the servers; default: HOLDFAST_STORE', schemes: ['redlock'] }),
  },
  details: `For a compose file, CI, or the first deployment, before any process uses the
servers. It writes only if all servers answer and none was used before. If they
are ready already, it changes nothing.
NEVER use it after servers have lost their data: a process may still hold a
lease that they have forgotten, and another would get the same key.

Exit codes: 0 the servers are ready, 69 a server does not answer, or may have
been used before.`,
}
