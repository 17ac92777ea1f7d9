import pg from 'pg'
import type { Store } from '../../../src/contract/store.ts'
import { connectionsOf } from '../../../src/postgres/connections.ts'
import { PostgresStore } from '../../../src/stores/postgres/postgres-store.ts'
import { migrateTables } from '../../../src/stores/postgres/tables.ts'

/** The store and what it needs; perhaps a copy with a mistake in it. */
export interface GroupModules {
  readonly PostgresStore: typeof PostgresStore
  readonly migrateTables: typeof migrateTables
  readonly connectionsOf: typeof connectionsOf
}

const MODULES: GroupModules = { PostgresStore, migrateTables, connectionsOf }

/** A schema whose clock the test sets, and stores in it. */
export interface GroupStage extends AsyncDisposable {
  /** `leastGroup`: the smallest number of waiters that becomes a group. */
  newStore(options?: { readonly leastGroup?: number }): Store
  /** Moves the clock on, or back. */
  pass(ms: number): Promise<void>
  /** The schema is written `holdfast`. */
  rows<Row = Record<string, unknown>>(sql: string): Promise<Row[]>
}

let stages = 0

export async function groupStage(url: string, modules: GroupModules = MODULES): Promise<GroupStage> {
  stages += 1
  const schema = `groups_${process.pid}_${stages}`
  const stores: Store[] = []
  const raw = new pg.Client(url)
  await raw.connect()
  const pool = new pg.Pool({ connectionString: url })
  const connectionsFor = () =>
    modules.connectionsOf(pool, {
      max: 1,
      applicationName: 'holdfast locks',
      statementLimitMs: 5000,
      settings: { enable_seqscan: 'off', enable_bitmapscan: 'off', jit: 'off' },
    })
  const making = connectionsFor()
  await modules.migrateTables(making, schema)
  await making.close()
  await raw.query(`
    create table ${schema}.present as select 1700000000000 as ms;
    create or replace function ${schema}.lock_clock() returns bigint language sql
      as 'select (ms * 1000)::bigint from ${schema}.present'`)
  return {
    newStore({ leastGroup = 4 } = {}) {
      const store = new modules.PostgresStore({
        connections: connectionsFor(),
        schema,
        mostCalls: 1,
        isLogged: false,
        readOnly: false,
        leastGroup,
        prepare: async () => {},
      })
      stores.push(store)
      return store
    },
    async pass(ms) {
      await raw.query(`update ${schema}.present set ms = ms + $1`, [ms])
    },
    rows: async <Row>(sql: string) =>
      (await raw.query(sql.replaceAll('holdfast.', `${schema}.`))).rows as Row[],
    async [Symbol.asyncDispose]() {
      await Promise.all(stores.map((store) => store.close()))
      await raw.query(`drop schema ${schema} cascade`)
      await raw.end()
      await pool.end()
    },
  }
}
