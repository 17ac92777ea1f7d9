import type { Subcommand } from '../arguments.ts'
import { storeOptions } from '../store-option.ts'
import { takeOptions } from '../take-plan.ts'

export const acquire: Subcommand = {
  name: 'acquire',
  usage: '[options] KEY --ttl DURATION',
  summary: 'Takes a key for several steps of a script, and prints the lease.',
  examples: [
    'lease=$(holdfast acquire deploy --ttl 10m) || exit',
    'holdfast release "$lease"',
    'holdfast acquire deploy --ttl 1h -w 5m --lease-file deploy.lease',
  ],
  options: {
    ttl: { value: 'DURATION', help: 'how long the key stays taken if it is not extended; required' },
    ...takeOptions,
    'lease-file': { value: 'PATH', help: 'where the lease is written; default: standard output' },
    label: {
      value: 'TEXT',
      help: 'what `holdfast ls` shows next to host and pid; default: holdfast acquire',
    },
    ...storeOptions(),
  },
  details: `This command ends at once, and NOBODY RENEWS THE KEY: when the ttl is over,
another gets it, whatever your script still does. Choose a ttl that is longer
than all of the steps, extend it between them, and release it at the end. Where
one command does the work, \`holdfast run\` renews the key and ends the command
when it is lost.
The lease is one line of JSON; its fence is for the resources that you write to.

Exit codes: 0 acquired, 75 not acquired (or what -E says), 74 the lease cannot
be written, 69 the store is unavailable or refuses.`,
}

export const extend: Subcommand = {
  name: 'extend',
  usage: '[options] LEASE | --lease-file PATH',
  summary: 'Renews a lease of `holdfast acquire`, and prints it anew.',
  examples: [
    'extended=$(holdfast extend "$lease" --ttl 5m) || exit; lease=$extended',
    'holdfast extend --lease-file deploy.lease',
  ],
  options: {
    ttl: { value: 'DURATION', help: 'how long the key stays taken from now on; default: as before' },
    'lease-file': { value: 'PATH', help: 'the file with the lease, which is written anew' },
    ...storeOptions(),
  },
  details: `LEASE is what \`holdfast acquire\` printed. A shorter ttl counts once the time that
the store has promised so far is over.

Exit codes: 0 extended, 76 the lease was lost before: others may have had the
key, 74 the key is extended, the new lease cannot be written: LEASE still works,
69 the store is unavailable or refuses.`,
}

export const release: Subcommand = {
  name: 'release',
  usage: '[options] LEASE | --lease-file PATH',
  summary: 'Gives back a lease of `holdfast acquire`.',
  examples: [
    'holdfast release "$lease"',
    'trap \'holdfast release "$lease"\' EXIT',
    'holdfast release --lease-file deploy.lease',
  ],
  options: {
    'lease-file': { value: 'PATH', help: 'the file with the lease' },
    ...storeOptions(),
  },
  details: `LEASE is what \`holdfast acquire\` printed.

Exit codes: 0 released, 76 the lease was lost before: others may have had the
key, 69 the store is unavailable or refuses.`,
}
