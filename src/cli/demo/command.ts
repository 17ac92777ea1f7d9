import type { Subcommand } from '../arguments.ts'
import { ALL_SCHEMES, storeOptions } from '../store-option.ts'

export const demo: Subcommand = {
  name: 'demo',
  usage: '[options]',
  summary: 'Lets processes compete for a key, kills and stops holders, and checks what happened.',
  examples: ['holdfast demo', 'holdfast demo --workers 10 --for 1m --store redis://cache'],
  options: {
    workers: { value: 'N', help: 'how many processes compete; default: 3' },
    'kill-every': { value: 'DURATION', help: 'how often something happens to the holder; default: 4s' },
    for: { value: 'DURATION', help: 'how long it takes; default: 20s' },
    ttl: { value: 'DURATION', help: 'how long a crash keeps the key; default: 1500ms' },
    json: { help: 'one JSON object an event and line' },
    ...storeOptions({
      help: 'where the key lives; default: HOLDFAST_STORE, else a temporary file',
      schemes: ALL_SCHEMES,
    }),
  },
  details: `The first holder gets SIGKILL, the second SIGSTOP and much later SIGCONT, the
third SIGTERM, and all further ones SIGKILL. Every write goes to a register, a
file that refuses stale fences. The verdict comes from that file alone. Exits
with 1 when two processes held the key at the same time, or nobody took over.
To see such a failure, use --store memory:, which gives every process a store of
its own.`,
}
