import { readFileSync } from 'node:fs'
import { Client, Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Store, Ticket } from '../../src/contract/store.ts'
import { guard, migrateGuard } from '../../src/guard/index.ts'
import { advisorySession, advisoryXact, migrate, postgresStore } from '../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { releaseOf, ticket } from '../stores/tickets.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

/** The rights that a page gives to the role of an application. */
interface Documented {
  readonly page: string
  /** Makes all tables and functions, as the superuser. */
  readonly prepare: (url: string) => Promise<void>
  /** Does work that needs every right of the page. Rejects if one right is missing. */
  readonly work: (url: string) => Promise<void>
  readonly tables: readonly string[]
}

const documented: Readonly<Record<string, Documented>> = {
  'the lock store': {
    page: 'postgres.md',
    prepare: (url) => withPool(url, (pool) => migrate(pool)),
    work: useStore,
    tables: [
      'lock_holders',
      'lock_waiters',
      'lock_wait_groups',
      'lock_tombstones',
      'lock_closures',
      'lock_fences',
    ],
  },
  'session locks': {
    page: 'advisory.md',
    prepare: (url) => withPool(url, (pool) => migrate(pool)),
    work: (url) =>
      withPool(url, async (pool) => {
        const lease = await advisorySession(pool, 'key')
        await lease.release()
      }),
    tables: ['advisory_fence'],
  },
  'the guard': {
    page: 'guard.md',
    prepare: (url) => withPool(url, (pool) => migrateGuard(pool)),
    work: useGuard,
    tables: ['guards'],
  },
}

describe.each(Object.entries(documented))(
  'a role with the rights that the documentation lists for %s',
  (_, of) => {
    test('can do everything, and has no right too many', async () => {
      const { url, role, owner } = await grantedBy(of)
      await of.work(url)
      const rights = await rightsOf(owner, role)
      expect(new Set(rights.map(({ table }) => table))).toEqual(new Set(of.tables))
      for (const { privilege, table } of rights) {
        await owner.query(`revoke ${privilege} on holdfast.${table} from ${role}`)
        await expect(of.work(url), `${privilege} on ${table} is needed`).rejects.toThrow()
        await owner.query(`grant ${privilege} on holdfast.${table} to ${role}`)
      }
      await owner.query(`revoke usage on schema holdfast from ${role}`)
      await expect(of.work(url)).rejects.toThrow()
      await owner.query(`grant usage on schema holdfast to ${role}`)
      await of.work(url)
    })

    test('cannot change what it is made of, or touch anything else', async () => {
      const { url, owner } = await grantedBy(of)
      await owner.query(
        'create table holdfast.of_others (secret text); create table public.of_others (secret text)',
      )
      const client = await clientAt(url)
      const refused = [
        'create table holdfast.mine (text text)',
        'create function holdfast.mine() returns int language sql as $$ select 1 $$',
        'create schema mine',
        `insert into holdfast.holdfast_versions values ('store', 9)`,
        'update holdfast.holdfast_versions set version = 9',
        'select * from holdfast.of_others',
        'select * from public.of_others',
        ...of.tables.flatMap((table) => [
          `drop table holdfast.${table}`,
          `truncate holdfast.${table}`,
          `alter table holdfast.${table} add column more text`,
          `create trigger mine before insert on holdfast.${table} execute function suppress_redundant_updates_trigger()`,
          `grant select on holdfast.${table} to public`,
        ]),
      ]
      for (const statement of refused) {
        const outcome = client.query(statement)
        if (/^grant/.test(statement)) await outcome.catch(() => {})
        else await expect(outcome, statement).rejects.toMatchObject({ code: '42501' })
      }
      for (const table of of.tables) {
        const [row] = (
          await owner.query(`select relacl::text as rights from pg_class where relname = '${table}'`)
        ).rows
        expect(row.rights).not.toMatch(/[{,]=/)
      }
    })
  },
)

test('a role of the lock store cannot make it forget its fences', async () => {
  const { url } = await grantedBy(documented['the lock store'] as Documented)
  const client = await clientAt(url)
  await expect(client.query('delete from holdfast.lock_fences')).rejects.toMatchObject({ code: '42501' })
})

test.each(['the lock store', 'the guard'])(
  'where functions are not for everybody, the second grant of %s is needed, and enough',
  async (name) => {
    const of = documented[name] as Documented
    const { url, owner, role } = await grantedBy(of, { strict: true })
    await expect(of.work(url)).rejects.toMatchObject({ code: 'store-refused' })
    await owner.query(fenceOf(of.page, 'sql strict grants', role))
    await of.work(url)
  },
)

test('a role without any right can lock in its own transaction', async () => {
  const url = await server.createDatabase('bare')
  await server.sql('create role bare login')
  const client = await clientAt(as('bare', url))
  await client.query('begin')
  await advisoryXact(client, 'key')
  await client.query('commit')
})

test('a role that may create schemas in the database, and nothing else, can prepare everything', async () => {
  const url = await server.createDatabase('prepared')
  await server.sql('create role builder login; grant create on database prepared to builder')
  await withPool(as('builder', url), async (pool) => {
    await migrate(pool)
    await migrateGuard(pool)
  })
})

let roles = 0

/** A database with everything in it, and a role with exactly what a page lists. */
async function grantedBy(
  { page, prepare }: Documented,
  { strict = false }: { readonly strict?: boolean } = {},
): Promise<{ readonly url: string; readonly role: string; readonly owner: Client }> {
  roles += 1
  const role = `app_${roles}`
  const url = await server.createDatabase(`of_${role}`)
  const owner = await clientAt(url)
  // PostgreSQL 15 has it like this from the start.
  await owner.query('revoke create on schema public from public')
  if (strict) await owner.query('alter default privileges revoke execute on functions from public')
  await prepare(url)
  await owner.query(`create role ${role} login; ${fenceOf(page, 'sql grants', role)}`)
  return { url: as(role, url), role, owner }
}

/** The statements in a page's fence of this kind, for another role than `app`. */
function fenceOf(page: string, kind: string, role: string): string {
  const text = readFileSync(new URL(`../../docs/${page}`, import.meta.url), 'utf8')
  const statements = text.split(`\`\`\`${kind}\n`)[1]?.split('```')[0]
  if (statements === undefined) throw new Error(`Expected docs/${page} to have a fence of ${kind}, got none.`)
  return statements.replaceAll(' to app;', ` to ${role};`)
}

async function rightsOf(
  owner: Client,
  role: string,
): Promise<readonly { readonly privilege: string; readonly table: string }[]> {
  const { rows } = await owner.query(
    `select privilege_type as privilege, table_name as table from information_schema.role_table_grants
      where grantee = '${role}' order by 2, 1`,
  )
  return rows
}

async function useStore(url: string): Promise<void> {
  await withPool(url, async (pool) => {
    const store = postgresStore(pool, { migrate: false })
    try {
      const key = crypto.randomUUID()
      const [mine, next, last] = [ticket({ key, lockDelayMs: 10 }), ticket({ key }), ticket({ key })]
      await store.acquire(mine)
      await store.acquire(next)
      await store.acquire(last)
      await store.renew([mine])
      await store.renew([next])
      await store.listen?.(() => {})
      await store.inspect({ prefix: key, cursor: undefined, count: 9 })
      await store.evict({ key, id: mine.id, reason: 'tested' })
      await until('the next one is let in', async () => (await store.renew([next]))[0]?.tag === 'held')
      await store.release({ key, id: next.id, cancel: true })
      await store.release({ key, id: last.id, cancel: false })
      await useGroup(store)
      // The store sweeps as a favour to others, and reports no failure of it.
      await pool.query('select holdfast.lock_sweep(10)')
    } finally {
      await store.close()
    }
  })
}

/** Waiters that are remembered together, and leave one by one. */
async function useGroup(store: Store): Promise<void> {
  const key = crypto.randomUUID()
  const [holder, ...waiters] = Array.from({ length: 6 }, () => ticket({ key })) as [Ticket, ...Ticket[]]
  for (const each of [holder, ...waiters]) await store.acquire(each)
  for (let round = 0; round < 2; round += 1) await store.renew(waiters)
  for (const each of [...waiters, holder]) await store.release(releaseOf(each))
}

async function useGuard(url: string): Promise<void> {
  const client = await clientAt(url)
  const resource = crypto.randomUUID()
  try {
    for (const fence of [1n, 2n]) {
      await client.query('begin')
      await guard(client, { fence, resource })
      await client.query('commit')
    }
  } finally {
    await client.end()
  }
}

/** The url of a database for another role. */
function as(role: string, url: string): string {
  return url.replace('holdfast@', `${role}@`)
}

async function withPool(url: string, work: (pool: Pool) => Promise<void>): Promise<void> {
  const pool = new Pool({ connectionString: url })
  try {
    await work(pool)
  } finally {
    await pool.end()
  }
}

async function clientAt(url: string): Promise<Client> {
  const client = new Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  onTestFinished(() => client.end())
  return client
}
