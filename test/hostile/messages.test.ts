import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { connect as connectSocket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import pg from 'pg'
import { expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks } from '../../src/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { newClient } from '../stores/redis/clients.ts'
import { hostileText, runs, wellFormed } from './fuzzing.ts'

interface Place extends AsyncDisposable {
  open(): Store
  /** Sends a text to every process that listens, behind the back of the store. */
  tell(text: string): Promise<unknown>
}

const places: Readonly<Record<string, () => Promise<Place>>> = {
  async redis() {
    const server = await startRedis()
    return {
      open: () => redisStore(newClient(server.url)),
      async tell(text) {
        const channels = await until('a process listens', async () => {
          const found = (await server.command('PUBSUB', 'CHANNELS', '*')) as string[]
          return found.length > 0 && found
        })
        for (const channel of channels) await server.command('PUBLISH', channel, text)
      },
      [Symbol.asyncDispose]: () => server.close(),
    }
  },
  async postgres() {
    const server = await startPostgres()
    const raw = new pg.Client({ connectionString: server.url })
    await raw.connect()
    return {
      open: () => postgresStore(new pg.Pool({ connectionString: server.url })),
      async tell(text) {
        // A notification is shorter than 8,000 bytes, and has no zero byte.
        const payload = wellFormed(text.replaceAll('\0', '').slice(0, 1900))
        const { rows } = await raw.query('select distinct inbox from holdfast.lock_waiters')
        expect(rows.length).toBeGreaterThan(0)
        for (const { inbox } of rows) await raw.query('select pg_notify($1, $2)', [inbox, payload])
      },
      async [Symbol.asyncDispose]() {
        await raw.end()
        await server.close()
      },
    }
  },
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-messages-'))
    return {
      open: () => sqliteStore(join(folder, 'locks.db')),
      async tell(text) {
        const sockets = await until('a process listens', () => {
          const found = readdirSync(folder, { recursive: true, withFileTypes: true })
          return found.some((one) => one.isSocket()) && found.filter((one) => one.isSocket())
        })
        for (const { parentPath, name } of sockets) await writeTo(join(parentPath, name), text)
      },
      async [Symbol.asyncDispose]() {
        rmSync(folder, { recursive: true })
      },
    }
  },
}

function writeTo(path: string, text: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connectSocket({ path })
    socket.on('error', () => {})
    socket.on('close', () => resolve())
    socket.resume().end(`${text}\n`)
  })
}

const MIB = 1_048_576

test.concurrent.for(Object.entries(places))(
  'on %s no text that a stranger sends to the processes gives a key to a waiter, takes it from a holder, or costs much memory',
  async ([, start]) => {
    await using place = await start()
    const [one, other] = [createLocks(place.open()), createLocks(place.open())]
    const held = await one.acquire('k', { ttl: '5m' })
    let isServed = false
    const waiting = other.acquire('k', { wait: '5m' }).then((lease) => {
      isServed = true
      return lease
    })
    const queued = await until('the other one waits', async () => {
      const { queue = [] } = (await one.peek('k')) as { queue?: readonly { id: string }[] }
      return queue[0]
    })
    // What a process would be told of its own ticket, but for a fence and a time that nobody can have given.
    const forged = fc.oneof(
      hostileText,
      fc
        .tuple(fc.constantFrom(queued.id, held.id, 'x'), hostileText, hostileText)
        .map((words) => words.join(' ')),
      fc.constantFrom(
        queued.id,
        held.id,
        `${queued.id} `,
        `${queued.id} 1`,
        `${queued.id} -1 1`,
        `${queued.id} 1 -1`,
      ),
      fc.constantFrom(
        `${queued.id} 99999999999999999999 1`,
        `${queued.id} 1 99999999999999999`,
        `${queued.id} NaN NaN`,
      ),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(forged, { maxLength: 5 }), async (texts) => {
        for (const text of texts) await place.tell(text)
        held.assertHeld()
        expect(isServed).toBe(false)
      }),
      runs(40),
    )
    const before = process.memoryUsage().rss
    for (let count = 0; count < 20; count += 1) await place.tell('x'.repeat(4 * MIB))
    expect(process.memoryUsage().rss - before).toBeLessThan(400 * MIB)
    expect(isServed).toBe(false)
    await held.release()
    await (await waiting).release()
    await Promise.all([one.close(), other.close()])
  },
)
