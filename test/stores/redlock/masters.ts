import { Redis } from 'ioredis'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { type RedlockStoreOptions, redlockStore } from '../../../src/stores/redlock/index.ts'
import { type RedisOptions, type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { releaseOf, ticket } from '../tickets.ts'

export interface Masters extends AsyncDisposable {
  readonly servers: readonly RedisServer[]
  readonly urls: readonly string[]
  /** A store like that of one more process. */
  store(options?: RedlockStoreOptions): Store
  /**
   * Waits until each server has had a vote of each store. A store does not wait for a server that it meets later than a
   * majority, and the requests to this server come later than the test goes on.
   */
  meet(...stores: readonly Store[]): Promise<void>
  /** Waits until each server has this ticket as a holder. An answer comes with the votes of the quickest servers. */
  untilAllHave(holder: Ticket): Promise<void>
  close(): Promise<void>
}

/** Starts independent servers that have forgotten nothing for a long time, unless they are `young`. */
export async function startMasters(
  count: number,
  { young = false, ...options }: RedisOptions & { readonly young?: boolean } = {},
): Promise<Masters> {
  const servers = await Promise.all(Array.from({ length: count }, () => startRedis(options)))
  if (!young) await Promise.all(servers.map(age))
  const close = async (): Promise<void> => {
    await Promise.all(servers.map((server) => server.close()))
  }
  return {
    servers,
    urls: servers.map(({ url }) => url),
    store: (storeOptions) =>
      redlockStore(
        servers.map(({ url }) => new Redis(url, { lazyConnect: true })),
        { maxTtl: '10m', ...storeOptions },
      ),
    async meet(...stores) {
      for (const store of stores)
        await until('all servers vote for the store', () => isMetByAll(store, servers))
    },
    async untilAllHave(holder) {
      for (const server of servers)
        await until('the server has the vote', async () => (await votedFence(server, holder)) !== undefined)
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

async function isMetByAll(store: Store, servers: readonly RedisServer[]): Promise<boolean> {
  const mine = ticket({ key: `met ${crypto.randomUUID()}`, ttlMs: 10_000 })
  // A lone holder is a text. Where the release comes before the answer to the request, a tombstone is left, which is none.
  const votes = async (): Promise<number> => {
    const types = await Promise.all(servers.map((server) => server.command('TYPE', `holdfast:{${mine.key}}`)))
    return types.filter((type) => type === 'string').length
  }
  await Promise.allSettled([store.acquire(mine)])
  const isMet = (await votes()) === servers.length
  await Promise.allSettled([store.release(releaseOf(mine))])
  if (isMet) await until('no server has the vote any more', async () => (await votes()) === 0)
  return isMet
}

/** The fence with which the server has this holder, if it has it. */
export async function votedFence(server: RedisServer, { key, id }: Ticket): Promise<string | undefined> {
  const room = `holdfast:{${key}}`
  // A lone holder is a text. Once it has claimed a fence that the server did not know, it is a member of a sorted set.
  const isLone = (await server.command('TYPE', room)) === 'string'
  const entries = isLone
    ? [await server.command('GET', room)]
    : await server.command('ZRANGE', room, '0', '-1')
  if (!Array.isArray(entries)) throw new Error(`Expected the entries of a room, got ${entries}.`)
  for (const entry of entries) {
    const [, holder, fence] = /^(?:2 t|e\d{13})([^\0]+)\0(?:h )?(\d+) /.exec(String(entry)) ?? []
    if (holder === id) return fence
  }
  return undefined
}

/** Makes the server believe that it has been in use for years. */
export async function age(server: RedisServer): Promise<void> {
  const run = /run_id:(\w+)/.exec(String(await server.command('INFO', 'server')))?.[1] ?? '-'
  await server.command('SET', 'holdfast:since', `${run.slice(0, 12)} ${run} 0000000000001`)
}
