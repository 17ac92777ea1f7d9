import { Pool, type PoolClient } from 'pg'
import postgres from 'postgres'
import { createJobs, type Jobs, type JobsOptions } from '../../src/jobs/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { type FaultProxy, startProxy } from '../servers/tcp-proxy.ts'
import { addChecks } from './checks.ts'

export type ClientKind = 'pg' | 'postgres.js'
export const CLIENT_KINDS: readonly ClientKind[] = ['pg', 'postgres.js']

/** Jobs in a schema of their own, over the user's client. The user also has a table for the effects of jobs. */
export class JobsScene implements AsyncDisposable {
  readonly server: PostgresServer
  readonly schema: string
  readonly pool: Pool
  readonly #closing: (() => Promise<unknown>)[] = []

  constructor(server: PostgresServer) {
    schemas += 1
    this.server = server
    this.schema = `jobs_${process.pid}_${schemas}`
    this.pool = new Pool({ connectionString: server.url, max: 4 })
    this.pool.on('error', () => {})
    this.#closing.push(() => this.pool.end())
  }

  /** Opens jobs, directly or through a proxy or a pooler. */
  open(
    options: JobsOptions = {},
    { kind = 'pg', url = this.server.url }: { kind?: ClientKind; url?: string } = {},
  ): Jobs {
    const client = kind === 'pg' ? new Pool({ connectionString: url }) : postgres(url)
    const jobs = createJobs(client, { schema: this.schema, ...options })
    this.#closing.unshift(async () => {
      await jobs.close({ grace: 0 })
      await client.end()
    })
    return jobs
  }

  /** A connection of the user's, which ends with the scene. */
  async connect(): Promise<PoolClient> {
    const client = await this.pool.connect()
    client.on('error', () => {})
    this.#closing.unshift(async () => client.release(true))
    return client
  }

  async sql(text: string): Promise<Record<string, unknown>[]> {
    return (await this.pool.query(text.replaceAll('$schema', this.schema))).rows
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closing) await close()
    await this.server.sql(`drop schema if exists ${this.schema} cascade`)
  }
}

let schemas = 0
let server: PostgresServer | undefined

/** One server for all scenes of a file. Its tables of jobs check what the library's own do not. */
export async function sharedServer(): Promise<PostgresServer> {
  if (server === undefined) {
    server = await startPostgres()
    await addChecks(server)
  }
  return server
}

export async function closeSharedServer(): Promise<void> {
  await server?.close()
  server = undefined
}

export async function openScene(): Promise<JobsScene> {
  return new JobsScene(await sharedServer())
}

interface Proxied extends AsyncDisposable {
  readonly scene: JobsScene
  readonly direct: Jobs
  readonly proxy: FaultProxy
  /** The URL of the same database through the proxy. */
  readonly url: string
}

/** Jobs over a direct connection, and a proxy that can lose the answers of other jobs. */
export async function openProxied(): Promise<Proxied> {
  const scene = await openScene()
  const direct = scene.open()
  await direct.migrate()
  const { port, url } = scene.server
  const proxy = await startProxy({ targetPort: port })
  return {
    scene,
    direct,
    proxy,
    url: url.replace(String(port), String(proxy.port)),
    async [Symbol.asyncDispose]() {
      await proxy.close()
      await scene[Symbol.asyncDispose]()
    },
  }
}
