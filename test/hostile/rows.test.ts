import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import pg from 'pg'
import { expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { etcdStore } from '../../src/stores/etcd/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import { base64, startEtcd } from '../servers/etcd-server.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { newClient } from '../stores/redis/clients.ts'
import { fenceOf, ticket } from '../stores/tickets.ts'
import { hostileText, runs, soundly } from './fuzzing.ts'

/** What a stranger writes in the place of a part of a room: which part, and a text or a number. */
interface Damage {
  readonly part: number
  readonly text: string
  readonly number: number
}

interface Place extends AsyncDisposable {
  readonly store: Store
  /** Writes to the room of the key behind the back of the store. A database may refuse what no column can hold. */
  damage(key: string, damage: Damage): Promise<unknown>
}

const damages: fc.Arbitrary<Damage> = fc.record({
  part: fc.nat(40),
  text: fc.oneof(
    hostileText,
    fc.constantFrom('h', 'o', 'l', 'w', '0', '-1', 'null', '[]', '{"state":"gone"}', '1e999'),
  ),
  number: fc.oneof(
    fc.double({ noNaN: false }),
    fc.constantFrom(
      -1,
      0,
      1,
      2 ** 53,
      2 ** 63,
      1e308,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
    ),
  ),
})

const places: Readonly<Record<string, () => Promise<Place>>> = {
  async redis() {
    const server = await startRedis()
    return {
      store: redisStore(newClient(server.url)),
      async damage(key, { part, text, number }) {
        const room = `holdfast:{${key}}`
        const score = Number.isNaN(number) ? '0' : String(number).replace('Infinity', 'inf')
        const type = await server.command('TYPE', room)
        const entries = type === 'zset' ? ((await server.command('ZRANGE', room, '0', '-1')) as string[]) : []
        const entry = entries[part % (entries.length + 1)]
        if (entry === undefined) {
          if (part % 3 === 0) await server.command('DEL', room)
          if (part % 3 !== 2) return server.command('ZADD', room, score, text).catch(() => {})
          return server.command('SET', room, `1 ${text}`)
        }
        const words = entry.split(' ')
        words[part % words.length] = part % 2 === 0 ? text : String(number)
        await server.command('ZREM', room, entry)
        return server.command('ZADD', room, score, words.join(' '))
      },
      [Symbol.asyncDispose]: () => server.close(),
    }
  },
  async postgres() {
    const server = await startPostgres()
    const pool = new pg.Pool({ connectionString: server.url, max: 2 })
    const raw = new pg.Client({ connectionString: server.url })
    await raw.connect()
    const [texts, numbers] = [
      {
        lock_holders: ['id', 'inbox', 'owner', 'state'],
        lock_waiters: ['id', 'inbox', 'owner', 'group_name'],
        lock_wait_groups: ['name'],
      },
      {
        lock_holders: ['units', 'unit_limit', 'lock_delay_ms', 'fence', 'since', 'expires_at', 'hold_until'],
        lock_waiters: [
          'place',
          'units',
          'unit_limit',
          'accept_ms',
          'lock_delay_ms',
          'grant_ms',
          'since',
          'heard_at',
        ],
        lock_wait_groups: ['size', 'heard_at', 'remembered_until'],
      },
    ] as const
    return {
      store: postgresStore(pool),
      async damage(key, { part, text, number }) {
        const table =
          (['lock_holders', 'lock_waiters', 'lock_wait_groups'] as const)[part % 3] ?? 'lock_holders'
        const isText = part % 2 === 0
        const columns = isText ? texts[table] : numbers[table]
        const column = columns[part % columns.length]
        const value = isText ? text : String(number)
        await raw
          .query(`update holdfast.${table} set ${column} = $2 where key = $1`, [key, value])
          .catch(() => {})
      },
      async [Symbol.asyncDispose]() {
        await raw.end()
        await pool.end()
        await server.close()
      },
    }
  },
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-rows-'))
    const file = join(folder, 'locks.db')
    const store = sqliteStore(file)
    await store.inspect({ prefix: '', cursor: undefined, count: 1 })
    const { DatabaseSync } = createRequire(import.meta.url)('@photostructure/sqlite')
    const raw = new DatabaseSync(file)
    raw.exec('pragma busy_timeout = 5000')
    const columns = {
      holder: [
        'id',
        'owner',
        'inbox',
        'state',
        'units',
        '"limit"',
        'lock_delay_ms',
        'fence',
        'since',
        'expires_at',
        'hold_until',
      ],
      waiter: [
        'id',
        'owner',
        'inbox',
        'place',
        'units',
        '"limit"',
        'ttl_ms',
        'accept_ms',
        'since',
        'heard_at',
        'remembered_until',
        'group_name',
      ],
      wait_group: ['name', 'inbox', 'size', 'changed', 'heard_at', 'remembered_until'],
    }
    return {
      store,
      async damage(key, { part, text, number }) {
        const table = TABLES[part % TABLES.length] ?? 'holder'
        const at = part % columns[table].length
        try {
          raw
            .prepare(`update ${table} set ${columns[table][at]} = ? where key = ?`)
            .run(columns[table][at]?.match(/^(id|name|owner|inbox|group_name)$/) ? text : number, key)
        } catch {
          // The column does not take it.
        }
      },
      async [Symbol.asyncDispose]() {
        raw.close()
        rmSync(folder, { recursive: true })
      },
    }
  },
  async etcd() {
    const server = await startEtcd()
    return {
      store: etcdStore({ endpoints: [server.url] }),
      async damage(key, { part, text, number }) {
        const range = { key: base64('holdfast/tickets'), range_end: base64('holdfast/tickett') }
        const { kvs = [] } = (await server.call('/v3/kv/range', range)) as {
          kvs?: { key: string; value?: string }[]
        }
        const mine = kvs.filter((pair) => Buffer.from(pair.key, 'base64').includes(key))
        const pair = mine[part % (mine.length + 1)]
        if (pair === undefined) {
          const [first] = mine
          if (first === undefined) return
          const name = Buffer.from(first.key, 'base64')
          return server.call('/v3/kv/put', {
            key: Buffer.concat([
              name.subarray(0, Math.max(18, name.length - (part % 12))),
              Buffer.from(text),
            ]).toString('base64'),
            value: base64(text),
          })
        }
        const value = Buffer.from(pair.value ?? '', 'base64').toString()
        const fields = value.split(/(?<=[,:])/)
        fields[part % fields.length] = part % 2 === 0 ? text : String(number)
        return server.call('/v3/kv/put', {
          key: pair.key,
          value: base64(part % 3 === 0 ? text : fields.join('')),
        })
      },
      [Symbol.asyncDispose]: () => server.close(),
    }
  },
}

/** The tables of a lock file that know of tickets. */
const TABLES = ['holder', 'waiter', 'wait_group'] as const

/** In a lock file: a fence without an end, which would be the start of all others. */
const MADE_UP_FENCE: Damage = { part: 18, text: '', number: Number.POSITIVE_INFINITY }

/** In a room of Redis: the holder stands behind the waiters, so the first of them stands in its place. */
const MOVED_HOLDER: Damage = { part: 1, text: '', number: 2.5e-323 }

/** No call may take longer, whatever it reads. */
const BOUND_MS = 20_000

test.concurrent.for(Object.entries(places))(
  'on %s a room that a stranger has written to fails its own calls by one line, or none, and no other key',
  async ([, start]) => {
    await using place = await start()
    const { store, damage } = place
    await store.listen?.(() => {})
    const neighbour = ticket({ key: 'neighbour' })
    const fence = fenceOf(await store.acquire(neighbour))
    let number = 0
    await fc.assert(
      fc.asyncProperty(fc.array(damages, { minLength: 1, maxLength: 3 }), async (strokes) => {
        number += 1
        const key = `damaged-${number}`
        const limit = 1 + (number % 2)
        const [holder, waiter, last] = [1, 2, 3].map((units) =>
          ticket({
            key,
            ttlMs: 5000,
            acceptMs: 2000,
            patienceMs: 5000,
            units: Math.min(units, limit),
            limit,
          }),
        ) as [ReturnType<typeof ticket>, ReturnType<typeof ticket>, ReturnType<typeof ticket>]
        fenceOf(await store.acquire(holder))
        // As many as become a group. The two examples are about rooms without one.
        const crowd = Array.from({ length: number < 3 ? 0 : 8 }, () => ticket({ key, limit }))
        for (const other of [waiter, last, ...crowd]) await store.acquire(other)
        await store.renew(crowd)
        for (const stroke of strokes) await damage(key, stroke)
        const startedAt = performance.now()
        await soundly(() => store.inspect({ prefix: key, cursor: undefined, count: 5 }))
        await soundly(() => store.acquire(waiter))
        // The keeper of leases renews all that are due by one call.
        expect((await store.renew([holder, neighbour, last]))[1]).toEqual({ tag: 'held', fence })
        await soundly(() => store.renew(crowd))
        await soundly(() => store.acquire(ticket({ key, patienceMs: 0 })))
        await soundly(() => store.release({ key, id: holder.id, cancel: false }))
        await soundly(() => store.release({ key, id: waiter.id, cancel: true }))
        await soundly(() => store.evict({ key, id: last.id, reason: 'stuck' }))
        await soundly(() => store.evict({ key, id: undefined, reason: 'all' }))
        expect(performance.now() - startedAt).toBeLessThan(BOUND_MS)
        expect(await store.renew([neighbour])).toEqual([{ tag: 'held', fence }])
        expect((await store.acquire(ticket({ key: 'neighbour', patienceMs: 0 }))).tag).toBe('busy')
        const fresh = ticket({ key: `fresh-${number}` })
        expect(fenceOf(await store.acquire(fresh))).toBeGreaterThan(fence)
        expect(await store.release({ key: fresh.key, id: fresh.id, cancel: false })).toEqual({ was: 'held' })
      }),
      { ...runs(40), examples: [[[MADE_UP_FENCE]], [[MOVED_HOLDER]]] },
    )
    await store.close()
  },
)
