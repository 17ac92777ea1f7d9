import type { Subcommand } from '../arguments.ts'
import { ALL_SCHEMES, storeOptions } from '../store-option.ts'

export const torture: Subcommand = {
  name: 'torture',
  usage: '[options]',
  summary: 'Lets processes use every kind of lock under faults, and checks what they recorded.',
  examples: [
    'holdfast torture --store redis://cache',
    'holdfast torture --store postgres://db/app --for 10m --nemesis kill,pause',
    'holdfast torture --store redis://cache --on-fault ./pause-redis.sh',
  ],
  options: {
    processes: { value: 'N', help: 'how many processes use the store; default: 4' },
    for: { value: 'DURATION', help: 'how long there are faults; default: 60s' },
    nemesis: {
      value: 'FAULTS',
      help: 'which faults there are, with commas: kill, pause, cut, outage, clock, or none; default: all that the store allows',
    },
    'on-fault': {
      value: 'FILE',
      help: 'a program that breaks the server: called with begin, and later with end',
    },
    forgets: { help: 'what --on-fault does may lose data of the server: it excuses what that explains' },
    ttl: { value: 'DURATION', help: 'how long a crash keeps a key; default: 2s' },
    settle: {
      value: 'DURATION',
      help: 'how long anybody may wait for a free key, and how long recovery may take, at least three times --ttl; default: 30s, or five times --ttl if that is longer',
    },
    seed: { value: 'N', help: 'repeats the faults and choices of a run, though not its timing' },
    out: {
      value: 'FOLDER',
      help: 'where the timeline and the history go; default: holdfast-torture-SEED',
    },
    json: { help: 'one JSON object a line; the last one is the verdict' },
    ...storeOptions({
      help: 'where the keys live; default: HOLDFAST_STORE, else a temporary file',
      schemes: ALL_SCHEMES,
    }),
  },
  details: `All keys begin with holdfast-torture: and the seed, and are gone afterwards.
Cuts and outages come from proxies of the command, between each process and the
server. Exits with 1 if a promise was broken, or if nothing could be checked.
To see such a verdict, use --store memory:, which gives every process a store
of its own.`,
}
