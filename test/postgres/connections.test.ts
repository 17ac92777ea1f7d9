import { once } from 'node:events'
import { type AddressInfo, connect, createServer, Socket } from 'node:net'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { connectionsOf, type PostgresConnections, type PostgresPool } from '../../src/postgres/connections.ts'
import { awakeMs } from '../base/measured.ts'
import { type PgBouncer, startPgBouncer } from '../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'

let server: PostgresServer
let pooler: PgBouncer

beforeAll(async () => {
  server = await startPostgres()
  pooler = await startPgBouncer(server)
})

afterAll(async () => {
  await pooler?.close()
  await server?.close()
})

/** A client of each package that is never connected itself, as users have them. */
const clients: Record<string, (url: string) => PostgresPool & { end(): Promise<unknown> }> = {
  'a pg.Pool': (url) => new pg.Pool({ connectionString: url }),
  'a pg.Client': (url) => new pg.Client({ connectionString: url }),
  'a postgres.js sql': (url) => postgres(url),
}

test('a `stream` of a pg.Pool makes one stream for each connection, and close() destroys it', async () => {
  const made: Socket[] = []
  const configs: unknown[] = []
  const { hostname, port, username, pathname } = new URL(server.url)
  const stream = (config?: unknown): Socket => {
    configs.push(config)
    const socket = new Socket()
    made.push(socket)
    return socket
  }
  const options = { host: hostname, port: Number(port), user: username, database: pathname.slice(1) }
  const pool = new pg.Pool({ ...options, stream })
  const connections = connectionsOf(pool, { max: 1, applicationName: 'holdfast test' })
  expect(await connections.query('select 1::text as one')).toEqual([{ one: '1' }])
  await connections.close()
  await until('the stream is destroyed', () => made.every(({ destroyed }) => destroyed))
  expect(made).toHaveLength(1)
  expect(configs).toEqual([expect.objectContaining({ keepAlive: true })])
  await pool.end()
})

test.each([undefined, null])('a pg.Pool with the `stream` %s gets a stream of ours', async (stream) => {
  const pool = new pg.Pool({ connectionString: server.url, stream: stream as never })
  const connections = connectionsOf(pool, { max: 1, applicationName: 'holdfast test' })
  expect(await connections.query('select 1::text as one')).toEqual([{ one: '1' }])
  await connections.close()
  await pool.end()
})

const limited: Readonly<Record<string, (url: string) => PostgresPool & { end(): Promise<unknown> }>> = {
  'a pg.Pool': (url) => {
    const limits = { statement_timeout: 50, lock_timeout: 50, idle_in_transaction_session_timeout: 50 }
    return new pg.Pool({ connectionString: url, query_timeout: 50, ...limits })
  },
  '`pg.defaults`': (url) => {
    const limits = { statement_timeout: 50, lock_timeout: 50, idle_in_transaction_session_timeout: 50 }
    const { defaults } = pg as unknown as { readonly defaults: Record<string, unknown> }
    const before = { ...defaults }
    onTestFinished(() => void Object.assign(defaults, before))
    Object.assign(defaults, limits, { query_timeout: 50 })
    return new pg.Pool({ connectionString: url })
  },
  'a postgres.js sql': (url) => {
    const limits = { statement_timeout: 50, lock_timeout: 50, idle_in_transaction_session_timeout: 50 }
    const connection = { ...limits, default_transaction_isolation: 'serializable', search_path: 'public' }
    return postgres(url, { connection: connection as never })
  },
}

test.each(Object.entries(limited))('settings of %s do not reach our sessions', async (_, clientOf) => {
  const client = clientOf(server.url)
  const connections = connectionsOf(client, {
    max: 1,
    applicationName: 'holdfast test',
    statementLimitMs: 5000,
  })
  const names = ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout']
  const asked = [...names, 'default_transaction_isolation', 'search_path']
    .map((name) => `current_setting('${name}') as ${name}`)
    .join(', ')
  // This one sends statements as they are, without a transaction that sets our settings.
  const own = await connections.reserve()
  const [row] = await own.query(`select ${asked}, pg_sleep(0.3)::text as slept`)
  expect(row).toEqual({
    statement_timeout: '5s',
    lock_timeout: '0',
    idle_in_transaction_session_timeout: '2500ms',
    default_transaction_isolation: 'read committed',
    search_path: 'pg_catalog',
    slept: '',
  })
  await connections.close()
  await client.end()
})

describe.each(Object.entries(clients))('connections made from %s', (_name, clientOf) => {
  async function using<T>(
    url: string,
    work: (connections: PostgresConnections) => Promise<T>,
    options: { max?: number; statementLimitMs?: number; isPrompt?: boolean } = {},
  ): Promise<T> {
    const client = clientOf(url)
    const connections = connectionsOf(client, { max: 2, applicationName: 'holdfast test', ...options })
    try {
      return await work(connections)
    } finally {
      await connections.close()
      await client.end()
    }
  }

  test('wait for one that is open when no further one can be opened', async () => {
    await server.sql(`create role frugal login connection limit 1`)
    const url = server.url.replace('//holdfast@', '//frugal@')
    await using(url, async (connections) => {
      // Two connections that open at the same moment may both be refused.
      await connections.query('select 1')
      const first = connections.query('select pg_sleep(0.5)')
      const others = Array.from({ length: 5 }, () => connections.query('select 1::text as one'))
      const answers = await Promise.all([...others, first])
      expect(answers.slice(0, -1)).toEqual(others.map(() => [{ one: '1' }]))
    })
    await server.sql('drop role frugal')
  })

  test('send text and read text, and are no more than they may be', () =>
    using(server.url, async (connections) => {
      const ask = async (_: unknown, index: number) => {
        const [row] = await connections.query(
          'select $1::text as given, $2::text as nothing, pg_backend_pid()::text as pid',
          [`ü'\\ ${index}`, null],
        )
        expect(row).toMatchObject({ given: `ü'\\ ${index}`, nothing: null })
        return row?.['pid']
      }
      const pids = await Promise.all(Array.from({ length: 50 }, ask))
      expect(new Set(pids).size).toBeLessThanOrEqual(2)
      expect(await connections.query('select 1 as one; select 2::text as two')).toEqual([{ two: '2' }])
      expect(await connections.isPooled()).toBe(false)
    }))

  test('run read committed and under their own limit, whatever the role says', async () => {
    const url = await server.createDatabase(`defaults_${Math.random().toString(36).slice(2)}`)
    const database = new URL(url).pathname.slice(1)
    await server.sql(`alter database ${database} set default_transaction_isolation = 'serializable'`)
    // Behind a pooler our first statement still runs under this limit, so the limit leaves time for it on a busy
    // machine.
    await server.sql(`alter database ${database} set statement_timeout = '3s'`)
    const asked = `select current_setting('transaction_isolation') as isolation, current_setting('statement_timeout') as limit`
    const own = [{ isolation: 'read committed', limit: '20s' }]
    for (const way of [url, pooler.urlOf(url)]) {
      await using(
        way,
        async (connections) => {
          expect(await connections.query(asked)).toEqual(own)
          expect(await connections.transaction((transaction) => transaction.query(asked))).toEqual(own)
        },
        { statementLimitMs: 20_000 },
      )
    }
  })

  test('commit and roll back, and do not report a success that was none', () =>
    using(server.url, async (connections) => {
      const table = `public.notes_${Math.random().toString(36).slice(2)}`
      await connections.query(`create table ${table} (text text)`)
      const kept = await connections.transaction(async (transaction) => {
        await transaction.query(`insert into ${table} values ($1::text)`, ['kept'])
        return 'result'
      })
      expect(kept).toBe('result')
      const refused = connections.transaction(async (transaction) => {
        await transaction.query(`insert into ${table} values ($1::text)`, ['undone'])
        throw new Error('of the work')
      })
      await expect(refused).rejects.toThrow('of the work')
      const swallowed = connections.transaction(async (transaction) => {
        await transaction.query(`insert into ${table} values ($1::text)`, ['lost'])
        await transaction.query('select 1/0').catch(() => {})
      })
      await expect(swallowed).rejects.toThrow('division by zero')
      expect(await connections.query(`select text from ${table}`)).toEqual([{ text: 'kept' }])
    }))

  test('are never used for a call once their end was announced', () =>
    using(
      server.url,
      async (connections) => {
        for (let turn = 0; turn < 20; turn += 1) {
          const ending = connections.query('select pg_terminate_backend(pg_backend_pid())')
          const next = connections.query('select 1::text as one')
          await expect(ending).rejects.toThrow()
          expect(await next).toEqual([{ one: '1' }])
        }
      },
      { max: 1 },
    ))

  test('are never used for a call after a reset a moment ago', async () => {
    await using relay = await startRelay(server.port)
    const url = server.url.replace(`:${server.port}/`, `:${relay.port}/`)
    await using(
      url,
      async (connections) => {
        for (let turn = 0; turn < 3; turn += 1) {
          await connections.query('select 1')
          const sleeping = expect(connections.query('select pg_sleep(30)')).rejects.toThrow()
          const next = connections.query('select 1::text as one')
          await until('it is asked', async () => {
            const rows = await server.sql(
              `select 1 from pg_stat_activity where query = 'select pg_sleep(30)' and state = 'active'`,
            )
            return rows.length > turn
          })
          relay.reset()
          await sleeping
          expect(await next).toEqual([{ one: '1' }])
        }
      },
      { max: 1 },
    )
  })

  test('replace connections that a restart or an administrator has ended', () =>
    using(server.url, async (connections) => {
      await connections.query('select 1')
      const sleeping = connections.query('select pg_sleep(30)')
      const ended = expect(sleeping).rejects.toThrow()
      await until('it is ended', async () => {
        const rows = await server.sql(
          `select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep(30)%'`,
        )
        return rows.length > 0
      })
      await ended
      expect(await connections.query('select 1::text as one')).toEqual([{ one: '1' }])
      await server.restart()
      await until('they are back', () =>
        connections.query('select 1').then(
          () => true,
          () => false,
        ),
      )
    }))

  test('leave no statement without an answer that was sent just as its connection ended', () =>
    using(server.url, async (connections) => {
      for (let round = 0; round < 12; round += 1) {
        let isOver = false
        // Statements follow one another on both connections, so that some meet the end of theirs.
        const asking = Array.from({ length: 4 }, async () => {
          while (!isOver)
            await connections.query('select $1::text', ['1']).catch(() => new Promise(setImmediate))
        })
        await server.sql(
          `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast test'`,
        )
        isOver = true
        // Our own limit for a silent connection is 11 s.
        const inTime = new Promise((_, reject) =>
          setTimeout(() => reject(new Error('no answer')), 8000).unref(),
        )
        await Promise.race([Promise.all(asking), inTime])
      }
    }))

  test('give up on a server that hangs, and come back to it', () =>
    using(
      server.url,
      async (connections) => {
        // On a busy machine the first connection may take longer than the limit.
        await until('it is connected', () =>
          connections.query('select 1').then(
            () => true,
            () => false,
          ),
        )
        await server.pause()
        try {
          await expect(connections.query('select 1')).rejects.toThrow()
        } finally {
          server.resume()
        }
        await until('they are back', () =>
          connections.query('select 1').then(
            () => true,
            () => false,
          ),
        )
      },
      { statementLimitMs: 200 },
    ))

  test('come back after a silence that outlasts the attempts to connect', () =>
    using(
      server.url,
      async (connections) => {
        const failed = async (asking: Promise<unknown>) => expect(asking).rejects.toThrow()
        const answers = () =>
          connections.query('select 1').then(
            () => true,
            () => false,
          )
        // The limit of a statement is short here, and a busy machine may need longer.
        await until('it is connected', answers)
        await server.pause()
        try {
          // The next connection takes the place of each silent one, and is silent, too.
          for (let attempt = 0; attempt < 2; attempt += 1) {
            await failed(connections.query('select 1'))
            await Promise.all([
              failed(connections.query('select 1')),
              failed(connections.reserve()),
              failed(connections.listen('channel', { onMessage() {}, onResubscribed() {} })),
            ])
          }
        } finally {
          server.resume()
        }
        await until('they are back', answers)
        await until('messages flow', () =>
          connections.listen('channel', { onMessage() {}, onResubscribed() {} }).then(
            () => true,
            () => false,
          ),
        )
      },
      { max: 1, statementLimitMs: 200 },
    ))

  test('give up on a server that falls silent before it has said who it is', async () => {
    await using relay = await startRelay(server.port)
    relay.swallowFrom('pg_backend_pid')
    const url = server.url.replace(`:${server.port}/`, `:${relay.port}/`)
    await using(url, async (connections) => {
      const endless = connections.reserve({ limitMs: Number.POSITIVE_INFINITY })
      await expect(endless).rejects.toThrow('No answer')
    })
  })

  test('replace all that died silently, as soon as one of them owes an answer for a while', async () => {
    await using relay = await startRelay(server.port)
    const url = server.url.replace(`:${server.port}/`, `:${relay.port}/`)
    await using(
      url,
      async (connections) => {
        const ask = () => connections.query('select 1::text as one')
        await Promise.all([ask(), ask()])
        relay.strand()
        const tookMs = await awakeMs(async () => {
          await expect(ask()).rejects.toThrow()
          expect(await Promise.all([ask(), ask()])).toEqual([[{ one: '1' }], [{ one: '1' }]])
        })
        // Without a second connection that looks, the limit would be 11 s.
        expect(tookMs).toBeLessThan(9000)
      },
      { isPrompt: true },
    )
  })

  test('replace one whose backend is gone without a word', async () => {
    await using relay = await startRelay(server.port)
    const url = server.url.replace(`:${server.port}/`, `:${relay.port}/`)
    await using(
      url,
      async (connections) => {
        const [row] = await connections.query('select pg_backend_pid()::text as pid')
        relay.strand({ forEver: true })
        await server.sql(`select pg_terminate_backend(${row?.['pid']}, 10000)`)
        const tookMs = await awakeMs(async () => {
          await expect(connections.query('select 1')).rejects.toThrow()
          expect(await connections.query('select 1::text as one')).toEqual([{ one: '1' }])
        })
        // Without a second connection that looks, the limit would be 11 s.
        expect(tookMs).toBeLessThan(9000)
      },
      { max: 1, isPrompt: true },
    )
  })

  test('keep those whose statements take long, and open one more connection in five seconds at most', async () => {
    await using relay = await startRelay(server.port)
    const url = server.url.replace(`:${server.port}/`, `:${relay.port}/`)
    await using(
      url,
      async (connections) => {
        const startedAt = performance.now()
        for (let round = 0; round < 3; round += 1) {
          const [row] = await connections.query("select 'slept' as what from pg_sleep(1.5)")
          expect(row).toEqual({ what: 'slept' })
        }
        const most = 2 + (performance.now() - startedAt) / 5000
        expect(relay.accepted).toBeGreaterThan(1)
        expect(relay.accepted).toBeLessThanOrEqual(most)
      },
      { max: 1, isPrompt: true },
    )
  })

  test('replace a silent connection for messages once they are asked to prove it', async () => {
    await using relay = await startRelay(server.port)
    const url = server.url.replace(`:${server.port}/`, `:${relay.port}/`)
    await using(
      url,
      async (connections) => {
        const heard: string[] = []
        let resubscribed = 0
        const listening = await connections.listen('channel', {
          onMessage: (payload) => heard.push(payload),
          onResubscribed: () => {
            resubscribed += 1
          },
        })
        // A firewall that has forgotten a connection behaves like this: the connection is open on both sides, and not a
        // byte passes.
        relay.strand()
        await until('messages flow again', () => {
          listening.probe()
          return resubscribed > 0
        })
        await server.sql(`select pg_notify('channel', 'one')`)
        await until('it is heard', () => heard.includes('one'))
      },
      { statementLimitMs: 2000 },
    )
  })

  test('reserve a connection besides the pool, and tell when it is lost', () =>
    using(server.url, async (connections) => {
      const own = await connections.reserve()
      expect(own.isPooled).toBe(false)
      expect(await own.query('select pg_backend_pid()::text as pid')).toEqual([
        { pid: String(own.backendPid) },
      ])
      await connections.query('select pg_terminate_backend($1::text::int)', [String(own.backendPid)])
      await own.closed
      await expect(own.query('select 1')).rejects.toThrow()
    }))

  test('hear messages, and hear them again after the connection was lost', () =>
    using(server.url, async (connections) => {
      const heard: string[] = []
      let resubscribed = 0
      const listening = await connections.listen('Some "channel"', {
        onMessage: (payload) => heard.push(payload),
        onResubscribed: () => {
          resubscribed += 1
        },
      })
      const say = (text: string) =>
        connections.query('select pg_notify($1::text, $2::text)', ['Some "channel"', text])
      await say('one')
      await until('it is heard', () => heard.length === 1)
      await server.restart()
      await until('messages flow again', () => resubscribed === 1)
      await until('it can be said', () =>
        say('two').then(
          () => true,
          () => false,
        ),
      )
      await until('it is heard', () => heard.includes('two'))
      listening.close()
    }))

  test('know a pooler when they meet one, and do not listen behind it', () =>
    using(pooler.url, async (connections) => {
      expect(await connections.query('select $1::text as given', ['x'])).toEqual([{ given: 'x' }])
      expect(await connections.isPooled()).toBe(true)
      expect((await connections.reserve()).isPooled).toBe(true)
      const listening = connections.listen('channel', { onMessage() {}, onResubscribed() {} })
      await expect(listening).rejects.toThrow('A pooler stands between us and PostgreSQL')
    }))

  test('leave no session behind when they are closed', async () => {
    const name = `holdfast test ${Math.random()}`
    const client = clientOf(server.url)
    const connections = connectionsOf(client, { max: 3, applicationName: name })
    await Promise.all([1, 2, 3, 4].map(() => connections.query('select pg_sleep(0.01)')))
    await connections.reserve()
    await connections.listen('channel', { onMessage() {}, onResubscribed() {} })
    const sessions = () => server.sql(`select 1 from pg_stat_activity where application_name = '${name}'`)
    // On a busy machine one connection may have run two of the queries before the third one was made.
    const before = (await sessions()).length
    expect(before).toBeGreaterThanOrEqual(3)
    expect(before).toBeLessThanOrEqual(5)
    await connections.close()
    await connections.close()
    await until('the sessions are gone', async () => (await sessions()).length === 0)
    await expect(connections.query('select 1')).rejects.toThrow('closed')
    await client.end()
  })
})

/** A relay to the server, with the faults of a firewall. */
interface Relay extends AsyncDisposable {
  readonly port: number
  /** How many connections were opened so far. */
  readonly accepted: number
  /** Resets every connection. */
  reset(): void
  /** Leaves the present connections open, but passes nothing on them any more. `forEver`: not even their end. */
  strand(options?: { readonly forEver: boolean }): void
  /** Passes nothing on a connection any more from its first request with this text on. */
  swallowFrom(text: string): void
}

async function startRelay(targetPort: number): Promise<Relay> {
  const links = new Set<{ readonly client: Socket; readonly upstream: Socket }>()
  let last: string | undefined
  let accepted = 0
  const relay = createServer((client) => {
    const upstream = connect(targetPort, '127.0.0.1')
    const link = { client, upstream }
    links.add(link)
    accepted += 1
    for (const socket of [client, upstream]) socket.on('error', () => {})
    client.on('close', () => upstream.destroy())
    upstream.on('close', () => client.destroy())
    client.on('data', (bytes) => {
      if (last !== undefined && bytes.includes(last)) strand(link)
    })
    client.pipe(upstream).pipe(client)
  })
  relay.listen(0, '127.0.0.1')
  await once(relay, 'listening')
  return {
    port: (relay.address() as AddressInfo).port,
    get accepted() {
      return accepted
    },
    reset() {
      for (const { client } of links) client.resetAndDestroy()
      links.clear()
    },
    strand({ forEver } = { forEver: false }) {
      for (const link of links) {
        strand(link)
        if (forEver) link.upstream.removeAllListeners('close')
      }
    },
    swallowFrom(text) {
      last = text
    },
    async [Symbol.asyncDispose]() {
      relay.close()
    },
  }

  function strand({ client, upstream }: { readonly client: Socket; readonly upstream: Socket }): void {
    client.unpipe(upstream)
    upstream.unpipe(client)
    // Bytes that arrive are read and forgotten.
    client.resume()
    upstream.resume()
  }
}
