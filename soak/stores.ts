import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { startEtcd } from '../test/servers/etcd-server.ts'
import { ensureBinary } from '../test/servers/install.ts'
import { startPostgres } from '../test/servers/postgres-server.ts'
import { startRedis } from '../test/servers/redis-server.ts'
import type { ServerSample } from './sample.ts'

/** A store under test: its server is started for it alone. */
export interface SoakedStore {
  readonly url: string
  readonly hasServer: boolean
  look(): Promise<ServerSample>
  close(): Promise<void>
}

/** By the name that `--store` takes. Each gets an empty folder. */
export const STORES: Readonly<Record<string, (folder: string) => Promise<SoakedStore>>> = {
  async redis() {
    await ensureBinary('redis-server')
    const server = await startRedis()
    return {
      url: server.url,
      hasServer: true,
      async look() {
        const info = String(await server.command('INFO'))
        return {
          memoryBytes: memoryOf(server.pid),
          connections: numberAfter('connected_clients:', info),
          storedBytes: numberAfter('used_memory_dataset:', info),
        }
      },
      close: () => server.close(),
    }
  },
  async postgres() {
    const server = await startPostgres()
    return {
      url: server.url,
      hasServer: true,
      async look() {
        const [row] = await server.sql<{ connections: string; stored: string }>(`
          SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
                 pg_database_size(current_database()) AS stored`)
        return {
          memoryBytes: memoryOf(server.pid),
          connections: Number(row?.connections),
          storedBytes: Number(row?.stored),
        }
      },
      close: () => server.close(),
    }
  },
  async etcd() {
    // Without compaction, etcd keeps every revision of every key: docs/etcd.md asks for it.
    const server = await startEtcd({
      args: ['--auto-compaction-mode', 'periodic', '--auto-compaction-retention', '1m'],
    })
    return {
      url: server.url.replace('http:', 'etcd:'),
      hasServer: true,
      async look() {
        const metrics = await (await fetch(`${server.url}/metrics`)).text()
        return {
          memoryBytes: memoryOf(server.pid),
          connections: numberAfter('\nprocess_open_fds ', metrics),
          storedBytes: numberAfter('\netcd_mvcc_db_total_size_in_bytes ', metrics),
        }
      },
      close: () => server.close(),
    }
  },
  async sqlite(folder) {
    const path = join(folder, 'locks.db')
    return {
      url: `sqlite:${path}`,
      hasServer: false,
      look: async () => ({
        memoryBytes: 0,
        connections: 0,
        storedBytes: sizeOf(path) + sizeOf(`${path}-wal`),
      }),
      close: async () => {},
    }
  },
}

/** The proportional share of memory of a process and its descendants, as Linux counts it. */
function memoryOf(pid: number): number {
  const own = numberAfter('\nPss:', readOf(`/proc/${pid}/smaps_rollup`)) * 1024
  const children = readOf(`/proc/${pid}/task/${pid}/children`).trim().split(/\s+/)
  return children.reduce((sum, child) => (child === '' ? sum : sum + memoryOf(Number(child))), own)
}

/** Empty if the process has ended meanwhile. */
function readOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}

function numberAfter(label: string, text: string): number {
  const at = text.indexOf(label)
  return at === -1 ? 0 : Number.parseFloat(text.slice(at + label.length))
}
