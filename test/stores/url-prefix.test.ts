import { expect, test } from 'vitest'
import { storeIdentity } from '../../src/cli/dashboard/store-identity.ts'
import { connect, createLocks, diagnose } from '../../src/index.ts'
import { parseUrl as parseEtcdUrl } from '../../src/stores/etcd/open.ts'
import { parseClusterUrl } from '../../src/stores/redis/cluster/open.ts'
import { openRedis } from '../../src/stores/redis/index.ts'
import { parseSentinelUrl } from '../../src/stores/redis/sentinel/open.ts'
import { parseRedlockUrl } from '../../src/stores/redlock/url.ts'
import { startEtcd } from '../servers/etcd-server.ts'
import { PATIENT_MASTERS, startCluster } from '../servers/redis-cluster.ts'
import { startSentinels } from '../servers/redis-sentinel.ts'
import { startRedis } from '../servers/redis-server.ts'

interface Place extends AsyncDisposable {
  readonly url: string
}

const places: Readonly<Record<string, () => Promise<Place>>> = {
  redis: async () => startRedis(),
  'redis+sentinel': async () => startSentinels({ replicas: 0 }),
  'redis+cluster': async () => startCluster({ replicas: 0, args: PATIENT_MASTERS }),
  etcd: async () => {
    const server = await startEtcd()
    return {
      url: `etcd://127.0.0.1:${server.port}`,
      [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
    }
  },
}

test.each(Object.entries(places))('on %s a URL names the prefix', async (store, open) => {
  await using place = await open()
  const url = `${place.url}?prefix=${store === 'etcd' ? 'app/' : 'app:'}`
  await using app = await connect(url)
  await using other = await connect(place.url)
  await using lease = await app.acquire('k')
  expect(lease.state).toBe('held')
  // Stores with different prefixes do not see each other.
  await using second = await other.acquire('k', { wait: '5s' })
  expect(second.state).toBe('held')
  await using colleague = await connect(url)
  expect(await colleague.tryAcquire('k')).toBeNull()
  const { findings } = await diagnose(url)
  const checks = findings.filter(({ verdict }) => verdict === 'problem').map(({ check }) => check)
  // No replica could take the place of this master.
  expect(checks.filter((check) => check !== 'role')).toEqual([])
})

test('an option that is undefined does not hide the prefix of the URL', async () => {
  await using server = await startRedis()
  const store = await openRedis(`${server.url}?prefix=app:`, { prefix: undefined })
  await using locks = createLocks(store)
  await locks.acquire('k')
  expect(await server.command('KEYS', '*')).toEqual(expect.arrayContaining(['app:fence']))
})

test('the doctor looks at the last fence with that prefix', async () => {
  await using server = await startRedis()
  await server.command('SET', 'app:fence', 'nonsense')
  const wrong = expect.objectContaining({ check: 'last fence', verdict: 'problem' })
  expect((await diagnose(server.url)).findings).not.toContainEqual(wrong)
  expect((await diagnose(`${server.url}?prefix=app:`)).findings).toContainEqual(wrong)
})

test('a + behind the ? of a URL is a plus, and not a space', async () => {
  await using server = await startRedis()
  const store = await openRedis(`${server.url}?prefix=a+b%20c:`)
  await using locks = createLocks(store)
  await locks.acquire('k')
  expect(await server.command('KEYS', '*')).toEqual(expect.arrayContaining(['a+b c:fence']))
  const { sentinel, options } = parseSentinelUrl(
    'redis+sentinel://s/mymaster?sentinelUsername=a+b&sentinelPassword=c+d%2B%20&prefix=e+f:',
  )
  expect([sentinel.username, sentinel.password, options.prefix]).toEqual(['a+b', 'c+d+ ', 'e+f:'])
  expect(parseClusterUrl('redis+cluster://host?prefix=e+f:').options.prefix).toBe('e+f:')
  expect(parseRedlockUrl('redlock:redis://host?prefix=e+f:').options.prefix).toBe('e+f:')
  expect(parseEtcdUrl('etcd://host?prefix=e+f/').prefix).toBe('e+f/')
  expect(storeIdentity('redis://host?prefix=e+f:')).toBe('redis host e+f:')
})

test.each([
  ['redis://host?replicas=many', '`replicas` to be a whole number'],
  ['redis://host?replicas=', '`replicas` to be a whole number'],
  ['redis+cluster://host?prefix=%7B%7D', '`prefix` to have no {}'],
  ['etcd://host?perfix=x', 'got something else'],
  ['etcd://host?prefix=%', 'a % that is not written as %25'],
])('refuses %s', async (url, message) => {
  await expect(connect(url)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining(message),
  })
})
