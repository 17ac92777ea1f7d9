import type { Subcommand } from '../arguments.ts'
import { fileOption, type SecretOption } from '../secret.ts'
import { storeOptions } from '../store-option.ts'

export const DASHBOARD_TOKEN: SecretOption = { name: 'token', variable: 'HOLDFAST_DASHBOARD_TOKEN' }

export const dashboard: Subcommand = {
  name: 'dashboard',
  usage: '[options]',
  summary: 'Shows who holds what, live, in a browser.',
  examples: ['holdfast dashboard --store redis://cache', 'holdfast dashboard --allow-evict --prefix job:'],
  options: {
    port: { value: 'N', help: 'where it listens; 0 for any that is free; default: 7575' },
    host: { value: 'NAME', help: 'default: 127.0.0.1, which only this machine can reach' },
    token: {
      value: 'TEXT',
      help: 'lets whoever has it look; default: HOLDFAST_DASHBOARD_TOKEN. Others can read it here: see --token-file',
    },
    ...fileOption(DASHBOARD_TOKEN),
    'allow-evict': { help: 'viewers may also evict; in a terminal, generates a token if none is given' },
    'allow-job-changes': {
      help: 'viewers may also retry, cancel and remove jobs; generates a token as --allow-evict does',
    },
    record: { help: 'look all the time, and keep the history also while no page is open' },
    'record-file': {
      value: 'PATH',
      help: 'keep the history in this SQLite file, whose folder exists; implies --record',
    },
    'record-keep': {
      value: 'DURATION',
      help: 'how far the history goes back, from 1m to 576h; default: 24h; implies --record',
    },
    prefix: { value: 'TEXT', help: 'only keys that begin with it' },
    title: { value: 'TEXT', help: 'the heading of the page; default: the kind of store' },
    json: { help: 'the address as one JSON object on one line' },
    ...storeOptions(),
  },
  details: `Read-only without --allow-evict and --allow-job-changes. To serve other machines it needs a token, and
a proxy in front of it that encrypts. In a terminal the address that it prints
contains the token; in a journal or a file it does not.
Jobs are shown, with their payloads, where the store is PostgreSQL and has
their tables. Ctrl-C ends it.`,
}
