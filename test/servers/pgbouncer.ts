import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import { freePort } from './free-port.ts'
import { ensureBinary } from './install.ts'
import { giveAway, owner, type PostgresServer } from './postgres-server.ts'
import { endServer, hasEnded, leftovers, logOf, spawnServer, tail } from './server-process.ts'
import { until } from './until.ts'

export interface PgBouncerOptions {
  /** When a connection to the server returns to the pool. Default: after each transaction. */
  readonly mode?: 'session' | 'transaction' | 'statement'
  /** How many connections to the server the pool has, for each database and user. Default: 4. */
  readonly poolSize?: number
  /** More lines for its `[pgbouncer]` section: `{ ignore_startup_parameters: 'options' }`. */
  readonly settings?: Readonly<Record<string, string>>
}

export interface PgBouncer extends AsyncDisposable {
  readonly port: number
  /** The URL of the server's database `holdfast` through the pool, as the superuser. */
  readonly url: string
  /** The URL of another database of the server, through the pool. */
  urlOf(serverUrl: string): string
  /** The output of the process. */
  log(): string
  /** Ends the process and removes its folder. May be called again. */
  close(): Promise<void>
}

/** Starts `pgbouncer` (or what `PGBOUNCER` names) in front of a server, on a free loopback port. */
export async function startPgBouncer(
  server: PostgresServer,
  { mode = 'transaction', poolSize = 4, settings = {} }: PgBouncerOptions = {},
): Promise<PgBouncer> {
  const binary = ensureBinary('pgbouncer')
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-pgbouncer-'))
  giveAway(folder)
  const port = await freePort()
  const users = join(folder, 'users.txt')
  const configuration = join(folder, 'pgbouncer.ini')
  const lines = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'trust',
    auth_file: users,
    pool_mode: mode,
    default_pool_size: String(poolSize),
    ...settings,
  }
  writeFileSync(users, '"holdfast" ""\n')
  writeFileSync(
    configuration,
    [
      '[databases]',
      `* = host=127.0.0.1 port=${server.port}`,
      '[pgbouncer]',
      ...Object.entries(lines).map(([name, value]) => `${name} = ${value}`),
      '',
    ].join('\n'),
  )
  const child = spawnServer(binary, [configuration], folder, { ...owner(), cwd: folder })
  leftovers.add(discard)
  const log = () => logOf(folder)
  const url = `postgres://holdfast@127.0.0.1:${port}/holdfast`
  try {
    await until('pgbouncer answers', isReady)
  } catch (error) {
    await close()
    throw error
  }
  return {
    port,
    url,
    urlOf: (serverUrl) => serverUrl.replace(`:${server.port}/`, `:${port}/`),
    log,
    close,
    [Symbol.asyncDispose]: close,
  }

  async function isReady(): Promise<boolean> {
    if (hasEnded(child)) throw new Error(`pgbouncer did not start on port ${port}: ${tail(log())}`)
    const client = new Client({ connectionString: url })
    client.on('error', () => {})
    try {
      await client.connect()
      await client.query('select 1')
      return true
    } catch {
      return false
    } finally {
      await client.end().catch(() => {})
    }
  }

  async function close(): Promise<void> {
    await endServer(child, 'SIGKILL')
    discard()
  }

  function discard(): void {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
    leftovers.delete(discard)
  }
}
