import { connect, type Locks, type LocksOptions } from '../index.ts'
import type { Arguments, Option } from './arguments.ts'
import { UsageError } from './usage-error.ts'

export const storeOption: Option = {
  value: 'URL',
  help: 'where the keys live; default: HOLDFAST_STORE, else a file in your state folder',
}

export async function openLocks(given: Arguments, options: LocksOptions = {}): Promise<Locks> {
  const url = await urlOf(given)
  // Held against nobody, and gone with this process.
  if (/^memory:/i.test(url)) throw new UsageError('Expected a store that other processes share, got memory:.')
  return connect(url, options)
}

export async function urlOf(given: Arguments): Promise<string> {
  // An empty variable counts as none, as it does with most tools.
  const url = given.text('store') ?? (process.env['HOLDFAST_STORE'] || undefined)
  if (url !== undefined) return url
  const { defaultSqlitePath } = await import('../stores/sqlite/index.ts')
  return `sqlite:${defaultSqlitePath()}`
}
