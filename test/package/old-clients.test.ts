import { createRequire } from 'node:module'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { holdfast } from '../../src/fastify/index.ts'
import { InvalidArgumentError, lockEvents } from '../../src/index.ts'
import { measureLocks } from '../../src/observe/prometheus/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { emptyProject, packTarball, toolFolder } from './empty-project.ts'

/** A package of the tools, loaded as its user would. */
function old<T>(name: string): T {
  return createRequire(join(toolFolder(name), 'package.json'))(toolFolder(name)) as T
}

type Made = new (options?: object) => never

describe('a client that is too old', () => {
  const clients: [string, () => unknown, string][] = [
    [
      'ioredis 4',
      () => redisStore(new (old<Made>('ioredis4'))({ lazyConnect: true })),
      'ioredis 5 or newer, got one of an older version: `npm install ioredis`.',
    ],
    [
      'redis 3',
      () => {
        const client = old<{ createClient(options: object): { end(): void } }>('redis3').createClient({
          port: 1,
          retry_strategy: () => undefined,
        })
        client.end()
        return redisStore(client as never)
      },
      'redis 4 or newer, got one of an older version: `npm install redis`.',
    ],
    [
      'a Client of pg 7',
      () => postgresStore(new (old<{ Client: Made }>('pg7').Client)()),
      'pg 8.11 or newer, got one of an older version: `npm install pg`.',
    ],
    [
      'a Pool of pg 7',
      () => postgresStore(new (old<{ Pool: Made }>('pg7').Pool)()),
      'pg 8.11 or newer, got one of an older version: `npm install pg`.',
    ],
    [
      'postgres 3.3',
      () => postgresStore(old<(url: string) => never>('postgres33')('postgres://localhost/x')),
      'postgres 3.4 or newer, got one of an older version: `npm install postgres`.',
    ],
  ]
  test.each(clients)('of %s is refused with the version that is needed', (_, open, message) => {
    expect(open).toThrow(InvalidArgumentError)
    expect(open).toThrow(`Expected a client of ${message}`)
  })
})

test('prom-client 14 counts the locks', async () => {
  const { Registry } = old<typeof import('prom-client')>('prom-client14')
  const registry = new Registry()
  const stop = measureLocks({ registry, locks: lockEvents })
  expect(await registry.metrics()).toContain('holdfast_held')
  stop()
})

test('Fastify 4 takes the plugin', async () => {
  const { fastify } = old<typeof import('fastify')>('fastify4')
  const app = fastify()
  await app.register(holdfast, { store: 'memory:' })
  app.get('/', (request) => request.withLock('k', async (lease) => lease.key))
  expect((await app.inject('/')).body).toBe('k')
  await app.close()
})

describe('npm', () => {
  let tarball: ReturnType<typeof packTarball>
  beforeAll(() => {
    tarball = packTarball()
  })
  afterAll(() => tarball[Symbol.dispose]())

  test('installs the package beside old clients', async () => {
    using project = emptyProject(tarball.path)
    const beside = [
      ...['redis@4', 'ioredis@4', 'pg@7', 'postgres@3.3', '@grpc/grpc-js@1.8', '@opentelemetry/api@1.4'],
      ...[
        'fastify@4',
        'prom-client@14',
        'rate-limiter-flexible@4',
        '@nestjs/common@9',
        'reflect-metadata@0.1',
      ],
    ]
    project.write('app/package.json', '{}')
    const args = [
      'install',
      '--prefix',
      'app',
      '--package-lock-only',
      '--prefer-offline',
      '--no-audit',
      '--no-fund',
    ]
    expect(await project.run('npm', [...args, ...beside, tarball.path])).not.toContain('ended with')
  })
})
