import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { lock } from 'proper-lockfile'
import type { Adapter, Surroundings } from '../adapter.ts'

/** proper-lockfile: a folder per lock, made by mkdir. */
export async function openProperLockfile({ folder }: Surroundings): Promise<Adapter> {
  return {
    async acquire(key) {
      const file = join(folder, encodeURIComponent(key))
      closeSync(openSync(file, 'a'))
      return lock(file, { retries: { forever: true, minTimeout: 5, maxTimeout: 50 } })
    },
    async close() {},
  }
}
