import pg from 'pg'
import { expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { postgresStore } from '../../../src/stores/postgres/index.ts'
import { statementsFor } from '../../../src/stores/postgres/statements.ts'
import { startPostgres } from '../../servers/postgres-server.ts'

interface PlanNode {
  readonly 'Node Type': string
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly 'Rows Removed by Index Recheck'?: number
  readonly 'Relation Name'?: string
  readonly Plans?: readonly PlanNode[]
}

test('a look at one key reads the rows of this key, however many others there are', async () => {
  await using server = await startPostgres()
  const locks = createLocks(postgresStore(new pg.Pool({ connectionString: server.url })))
  const held = await locks.acquire('m')
  const readers = await Promise.all([1, 2, 3].map(() => locks.readWrite('shared').acquireRead()))
  await server.sql(`
    insert into holdfast.lock_holders
      (key, id, units, unit_limit, lock_delay_ms, fence, since, state, expires_at, hold_until, inbox, owner)
    select 'other:' || n, n::text, 1, 1, 0, n, 0, 'h', 1e15, 0, '', '{}' from generate_series(1, 50000) n;
    insert into holdfast.lock_waiters
      (key, place, id, units, unit_limit, accept_ms, lock_delay_ms, grant_ms, since, heard_at, remembered_until, inbox, listens, owner, group_name)
    select 'other:' || n, n, n::text, 1, 1, 0, 0, 0, 0, 0, 1e15, '', false, '{}', 'group' from generate_series(1, 50000) n;
    insert into holdfast.lock_wait_groups select 'other:' || n, 'group', 1, false, 0, 1e15, false from generate_series(1, 50000) n;
    insert into holdfast.lock_closures select 'other:' || n, 1e15 from generate_series(1, 50000) n;
    analyze holdfast.lock_holders, holdfast.lock_waiters, holdfast.lock_wait_groups, holdfast.lock_closures`)
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  // The last plan is one for every key, as a server makes it for a statement that is asked often.
  for (const mode of ['force_custom_plan', 'force_generic_plan']) {
    await client.query(`set plan_cache_mode = ${mode}`)
    for (const [key, rows] of [
      ['a key that is free, before all others', 0],
      ['m', 1],
      ['shared', 3],
      ['other:', 0],
      ['other:25000', 3],
    ] as const) {
      const name = `peek_${mode}`
      const text = `explain (analyze, format json) ${statementsFor('holdfast').peek}`
      const plan = await client.query({ name, text, values: [key] })
      // Twice as many at the most: the lock-delay of the holders is looked up for itself.
      expect(rowsRead(plan.rows[0]['QUERY PLAN'][0].Plan), `${key}, ${mode}`).toBeLessThanOrEqual(2 * rows)
    }
  }
  expect(await locks.peek('m')).toMatchObject({
    key: 'm',
    holders: [{ id: held.id }],
    queue: [],
    closedMs: 0,
  })
  expect((await locks.peek('shared'))?.holders).toHaveLength(3)
  expect(await locks.peek('other:25000')).toMatchObject({
    holders: [{ id: '25000' }],
    queue: [{ id: '25000' }],
  })
  expect(await locks.peek('other:')).toBeNull()
  await client.end()
  await Promise.all([held, ...readers].map((lease) => lease.release()))
  await locks.close()
})

/** All rows that the scans of tables have looked at. */
function rowsRead(node: PlanNode): number {
  const below = (node.Plans ?? []).reduce((sum, one) => sum + rowsRead(one), 0)
  if (node['Relation Name'] === undefined) return below
  const seen =
    node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
  return below + seen * node['Actual Loops']
}
