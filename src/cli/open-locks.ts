import { connect, type Locks, type LocksOptions } from '../index.ts'
import { UsageError } from './usage-error.ts'

export async function openLocks(url: string, options: LocksOptions = {}): Promise<Locks> {
  // A lock in this process's memory excludes nobody.
  if (/^memory:/i.test(url)) throw new UsageError('Expected a store that other processes share, got memory:.')
  return connect(url, options)
}
