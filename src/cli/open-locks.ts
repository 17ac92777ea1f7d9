import { type ConnectOptions, connect, type Locks } from '../index.ts'
import { complain } from './terminal.ts'
import { UsageError } from './usage-error.ts'

export async function openLocks(url: string, options: ConnectOptions = {}): Promise<Locks> {
  // A lock in this process's memory excludes nobody.
  if (/^memory:/i.test(url)) throw new UsageError('Expected a store that other processes share, got memory:.')
  return connect(url, options)
}

/** For commands that only look. Says on the error output what they cannot know. */
export async function openToLook(url: string): Promise<Locks> {
  const locks = await openLocks(url, { readOnly: true })
  try {
    for (const caveat of await locks.caveats()) complain(caveat)
    return locks
  } catch (error) {
    await locks.close()
    throw error
  }
}
