import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'
import { takeOptions } from '../take-plan.ts'

export const run: Subcommand = {
  name: 'run',
  usage: '[options] KEY -- COMMAND [ARGUMENTS…]',
  summary: 'Holds a key while a command runs.',
  examples: [
    'holdfast run nightly-report -- ./report.sh --since yesterday',
    'holdfast run -n migrate -- ./migrate.sh || { [ $? -eq 75 ] && echo "not this time"; }',
    'holdfast run -w 10 --store redis://cache --permits 3 render -- make video',
  ],
  options: {
    ...takeOptions,
    ttl: {
      value: 'DURATION',
      help: 'how long it stays taken when this machine dies; renewed at a third of it; default: 30s',
    },
    grace: {
      value: 'DURATION',
      help: 'when it is about to be lost, the command gets SIGTERM this long before SIGKILL; default: 5s, or a quarter of the ttl if that is less',
    },
    label: {
      value: 'TEXT',
      help: 'what `holdfast ls` shows next to host and pid; default: the name of the command',
    },
    ...storeOptions(),
  },
  takesCommand: true,
  details: `The command runs without a shell, in a process group of its own, with
HOLDFAST_KEY, HOLDFAST_FENCE and HOLDFAST_ID in its environment. When the key is
lost, the whole group ends before the store gives the key to another.
A KEY that begins with a dash: holdfast run [options] -- KEY -- COMMAND

Exit codes: the command's own, 128+n when it ended by signal n
   75  not acquired (or what -E says)    69  the store is unavailable or refuses
   76  lost: the command was ended       64  not called as above
  127  no such command                  126  it cannot be executed`,
}
