import { describe, expect, test } from 'vitest'
import { base64, startEtcd, startEtcdCluster } from './etcd-server.ts'

describe('a real etcd for tests', () => {
  test('answers, counts its requests, keeps its data over a restart, and loses it when told to', async () => {
    await using server = await startEtcd()
    const pid = server.pid
    await server.call('/v3/kv/put', { key: base64('k'), value: base64('v') })
    expect(await server.requests()).toMatchObject({ Put: 1 })
    await server.restart()
    expect(server.pid).not.toBe(pid)
    expect(await server.call('/v3/kv/range', { key: base64('k') })).toMatchObject({ count: '1' })
    await server.restart({ empty: true })
    expect(await server.call('/v3/kv/range', { key: base64('k') })).not.toHaveProperty('count')
  })

  test('shows its certificate, and asks for a name once it is told to', async () => {
    await using server = await startEtcd({ tls: 'server' })
    expect(server.url).toMatch(/^https:/)
    const token = await server.enableAuth('secret')
    await expect(server.call('/v3/kv/range', { key: base64('k') })).rejects.toThrow('user name is empty')
    expect(await server.call('/v3/kv/range', { key: base64('k') }, { token })).toHaveProperty('header')
  })

  test('is a cluster of three that chooses a new leader', async () => {
    await using cluster = await startEtcdCluster()
    const leader = await cluster.leader()
    await leader.pause()
    const next = await cluster.leader()
    expect(next).not.toBe(leader)
    leader.resume()
    await next.kill()
    expect(await cluster.leader()).not.toBe(next)
    await next.restart()
    expect(await (await cluster.follower()).call('/v3/kv/range', { key: base64('k') })).toHaveProperty(
      'header',
    )
  })
})
