import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'

export const ls: Subcommand = {
  name: 'ls',
  usage: '[options] [PREFIX]',
  summary: 'Lists the keys that somebody holds or waits for, one line a holder.',
  examples: [
    'holdfast ls job:',
    "holdfast ls --json --store redis://cache | jq -r 'select(.queue != []) | .key'",
  ],
  options: {
    json: { help: 'one JSON object a key and line, fences as strings' },
    ...storeOptions(),
  },
}

export const show: Subcommand = {
  name: 'show',
  usage: '[options] KEY',
  summary: 'Shows who holds a key and who waits for it, with their ids.',
  examples: ['holdfast show job:backup', 'holdfast show --json job:backup --store etcd://localhost:2379'],
  options: {
    json: { help: 'one JSON object on one line, fences as strings' },
    ...storeOptions(),
  },
}

export const evict: Subcommand = {
  name: 'evict',
  usage: '[options] KEY --reason TEXT',
  summary: 'Takes a key away from those who hold it or wait for it.',
  examples: ['holdfast evict job:backup --reason "hangs since monday"'],
  options: {
    reason: { value: 'TEXT', help: 'what the holder is told; required' },
    id: { value: 'ID', help: 'only this ticket (see `holdfast show`); default: all of the key' },
    json: { help: 'one JSON object on one line' },
    ...storeOptions(),
  },
  details: `A holder is told, but it may be in the middle of a write: only fences stop that.
Exits with 1 when there was nobody to evict.`,
}

export const wait: Subcommand = {
  name: 'wait',
  usage: '[options] KEY',
  summary: 'Waits until a key is free, without taking it.',
  examples: [
    'holdfast wait migration -w 10m && ./start.sh',
    'holdfast wait -w 0 migration || { [ $? -eq 75 ] && echo "it still runs"; }',
  ],
  options: {
    timeout: {
      short: 'w',
      value: 'DURATION',
      help: 'wait for this long; 0: look once; default: until it is free',
    },
    ...storeOptions(),
  },
  details: `Free means that nobody holds the key and nobody waits for it. Another process
may take it in the same moment: to work alone, use \`holdfast run\`.

Exit codes: 0 free, 75 not free in time, 69 the store is unavailable or refuses,
128+n ended by signal n.`,
}
