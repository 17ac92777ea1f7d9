import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createLocks, type Locks } from '../../../src/index.ts'
import { postgresStore } from '../../../src/stores/postgres/index.ts'
import { shortestMs, unlessLate } from '../../base/measured.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'

const clients: Readonly<Record<string, (url: string) => pg.Pool | postgres.Sql>> = {
  pg: (url) => new pg.Pool({ connectionString: url }),
  'postgres.js': (url) => postgres(url),
}

/** A firewall forgets all connections of a store: they stay open, and no byte passes any more. New connections work. */
describe.concurrent.each(Object.entries(clients))('connections that die silently, of %s,', (_, newClient) => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.close())

  /** Both connections of the pool have been used. */
  async function warmLocksAt(port: number): Promise<Locks> {
    const url = new URL(server.url)
    url.port = String(port)
    const locks = createLocks(postgresStore(newClient(url.href)))
    const take = async (key: string): Promise<void> => (await locks.acquire(key)).release()
    await take('first')
    await Promise.all(['second', 'third'].flatMap((key) => [take(key), locks.peek(key)]))
    return locks
  }

  test('cost no lease of three seconds', async () => {
    const outlives = async (): Promise<void> => {
      await using proxy = await startProxy({ targetPort: server.port })
      await using locks = await warmLocksAt(proxy.port)
      const lease = await locks.acquire('short', { ttl: 3000 })
      const { signal, fence } = lease
      proxy.strand()
      const endsAt = performance.now() + 8000
      await until('eight seconds have passed', () => performance.now() >= endsAt)
      expect(signal.aborted).toBe(false)
      expect(await locks.peek('short')).toMatchObject({ holders: [{ id: lease.id, fence }] })
      await lease.release()
    }
    // On a busy machine a new connection may take longer than the lease lasts.
    await unlessLate(outlives, () => true)
  })

  test('delay the next try by less than four seconds', async () => {
    const tookMs = await shortestMs(4000, async () => {
      await using proxy = await startProxy({ targetPort: server.port })
      await using locks = await warmLocksAt(proxy.port)
      proxy.strand()
      const triedAt = performance.now()
      const lease = await locks.tryAcquire('tried')
      const delayMs = performance.now() - triedAt
      await lease?.release()
      return delayMs
    })
    expect(tookMs).toBeLessThan(4000)
  })
})
