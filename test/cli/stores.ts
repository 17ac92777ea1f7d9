import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startRedis } from '../servers/redis-server.ts'

/** A store of its own for each test file. */
export interface TestStore extends AsyncDisposable {
  readonly url: string
}

/** The stores that several processes share. */
export const sharedStores: readonly { readonly name: string; open(): Promise<TestStore> }[] = [
  { name: 'sqlite', open: openSqlite },
  { name: 'redis', open: startRedis },
]

export async function openSqlite(): Promise<TestStore> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-cli-'))
  return {
    url: `sqlite:${join(folder, 'locks.db')}`,
    async [Symbol.asyncDispose]() {
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
