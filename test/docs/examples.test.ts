import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type EtcdServer, startEtcd } from '../servers/etcd-server.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { type Masters, startMasters } from '../stores/redlock/masters.ts'
import { projectFiles, root } from '../tidy/project.ts'

const examples = projectFiles().filter((path) => /^examples\/[^/]+\.(ts|mjs)$/.test(path))
let redis: RedisServer
let postgres: PostgresServer
let etcd: EtcdServer
let masters: Masters
let folder: string

beforeAll(async () => {
  ;[redis, postgres, etcd, masters] = await Promise.all([
    startRedis(),
    startPostgres(),
    startEtcd(),
    startMasters(3, { young: true }),
  ])
  folder = mkdtempSync(join(tmpdir(), 'holdfast-examples-'))
})
afterAll(async () => {
  await Promise.all([redis.close(), postgres.close(), etcd.close(), masters.close()])
  rmSync(folder, { recursive: true, force: true })
})

test('there are examples', () => {
  expect(examples).not.toEqual([])
})

// Each example runs as a reader runs it: against the built package, in an empty working folder. REDIS_URL is a Redis,
// POSTGRES_URL a PostgreSQL, ETCD_URL an etcd, and REDLOCK_URL three new Redis masters.
test.each(examples)('%s runs to its end', async (path) => {
  await promisify(execFile)(process.execPath, ['--import', import.meta.resolve('tsx'), join(root, path)], {
    cwd: folder,
    timeout: 120_000,
    killSignal: 'SIGKILL',
    env: {
      ...process.env,
      REDIS_URL: redis.url,
      POSTGRES_URL: postgres.url,
      ETCD_URL: etcd.url,
      REDLOCK_URL: `redlock:${masters.urls}`,
      // Turns the repository's path mapping off, so that `holdfast` is what package.json exports.
      TSX_TSCONFIG_PATH: join(root, 'test/docs/examples.tsconfig.json'),
    },
  })
})
