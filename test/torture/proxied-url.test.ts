import { expect, test } from 'vitest'
import { proxiedUrl } from '../../src/cli/torture/proxied-url.ts'

test.each([
  [
    'redis://user:p%40ss@cache:6380/2?prefix=a:',
    [['cache', 6380]],
    'redis://user:p%40ss@127.0.0.1:7001/2?prefix=a:',
  ],
  ['redis://cache', [['cache', 6379]], 'redis://127.0.0.1:7001'],
  [
    'postgres://u:p@[::1]/app?sslmode=disable',
    [['::1', 5432]],
    'postgres://u:p@127.0.0.1:7001/app?sslmode=disable',
  ],
  [
    'etcd://u:p@a:1,b?prefix=x/',
    [
      ['a', 1],
      ['b', 2379],
    ],
    'etcd://u:p@127.0.0.1:7001,127.0.0.1:7002?prefix=x/',
  ],
  [
    'redlock:redis://a:1,redis://b:2,redis://c?maxTtl=5m',
    [
      ['a', 1],
      ['b', 2],
      ['c', 6379],
    ],
    'redlock:redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003?maxTtl=5m',
  ],
])('%s goes through proxies', (url, servers, through) => {
  const proxied = proxiedUrl(url)
  if ('because' in proxied) throw new Error(proxied.because)
  expect(proxied.servers.map(({ host, port }) => [host, port])).toEqual(servers)
  expect(proxied.through([7001, 7002, 7003].slice(0, servers.length))).toBe(through)
})

test.each([
  'rediss://cache',
  'etcds://a',
  'redlock:redis://a,rediss://b,redis://c',
  'postgres://db/app?sslmode=require',
  'postgres:///app?host=/run/postgresql',
  'redis+sentinel://a/master',
  'redis+cluster://a',
  'sqlite:./locks.db',
])('no proxy can stand before %s', (url) => {
  expect(proxiedUrl(url)).toEqual({ because: expect.any(String) })
})
