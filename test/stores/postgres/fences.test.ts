import pg from 'pg'
import { expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { startPostgres } from '../../servers/postgres-server.ts'

test('fences of a key rise while many keys get theirs at the same time and the clock jumps back and forth', async () => {
  await using server = await startPostgres()
  await migrate(new pg.Client({ connectionString: server.url }))
  await server.sql('alter database holdfast set synchronous_commit = off')
  const falls = await Promise.all(
    ['a', 'b', 'c', 'd'].map(async (key) => {
      const session = new pg.Client({ connectionString: server.url })
      await session.connect()
      let fallen = 0
      let last = 0n
      for (let turn = 0; turn < 1000; turn += 1) {
        const { rows } = await session.query(GIVE, [key])
        const fence = BigInt(rows[0].fence)
        if (fence <= last) fallen += 1
        last = fence
      }
      await session.end()
      return fallen
    }),
  )
  expect(falls).toEqual([0, 0, 0, 0])
})

test('keys can be held after the clock was beyond the year 2286, with fences of 17 digits', async () => {
  await using server = await startPostgres()
  const client = new pg.Client({ connectionString: server.url })
  await migrate(client)
  await server.sql('insert into holdfast.lock_fences select n, 10^16::bigint from generate_series(0, 1023) n')
  const locks = createLocks(postgresStore(client))
  await using lease = await locks.acquire('a')
  expect(lease.fence).toBe(10n ** 16n + 1n)
  await lease.release()
  await locks.close()
})

/** Gives one fence as a verb does. The previous holder leaves, so the room has no row with its fence. */
const GIVE = `
  with gone as (delete from holdfast.lock_holders where key = $1)
  select holdfast.lock_rooms(array[$1]),
    holdfast.lock_hold(
      $1, (extract(epoch from clock_timestamp()) * 1e6 - random() * 1e5)::bigint, 0, gen_random_uuid()::text, 1, 1, 0, 'h', 0, 0, '', ''
    )::text as fence`
