import { afterAll, beforeAll, describe, test } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { conformanceCases, isAboutGrants } from '../conformance-cases.ts'
import { clients } from './clients.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

// Most cases run at the same time: they mostly wait for an expiry, and each has keys of its own.
describe.each(Object.entries(clients))('the postgres store on %s keeps the contract', (_, newClient) => {
  const cases = conformanceCases({
    open: () => postgresStore(newClient(server.url)),
    grants: true,
    leftovers: (prefix) => keysLike(prefix),
  })
  for (const { name, run } of cases.filter((each) => !isAboutGrants(each))) test.concurrent(name, run)
  // One commit at a time grants a key by message, and the others make offers. So these cases run one after the other.
  for (const { name, run } of cases.filter(isAboutGrants)) test(name, run)
})

async function keysLike(prefix: string): Promise<string[]> {
  const tables = ['lock_holders', 'lock_waiters', 'lock_wait_groups', 'lock_tombstones', 'lock_closures']
  const rows = await server.sql<{ kept: string }>(
    tables
      .map(
        (table) =>
          `select '${table} ' || key as kept from holdfast.${table} where starts_with(key, '${prefix}')`,
      )
      .join(' union all '),
  )
  return rows.map(({ kept }) => kept)
}
