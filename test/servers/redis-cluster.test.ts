import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { PATIENT_MASTERS, startCluster } from './redis-cluster.ts'

test('a cluster moves a slot step by step, and replaces a master that is killed', async () => {
  await using cluster = await startCluster()
  expect(await cluster.masters()).toHaveLength(3)
  const source = await cluster.masterOf('one')
  const target = (await cluster.masters()).find((server) => server !== source)
  if (target === undefined) throw new Error('Expected another master')
  await source.command('SET', 'one', 'value')
  const move = await cluster.beginMove('one', target)
  expect(await move.moveKey()).toBe('one')
  await expect(source.command('GET', 'one')).rejects.toThrow(/^ASK /)
  await move.finish()
  expect(await target.command('GET', 'one')).toBe('value')
  await expect(source.command('GET', 'one')).rejects.toThrow(/^MOVED /)
  const replica = await cluster.replicaOf(target)
  await target.kill()
  expect(await cluster.successorOf(target, 'one')).toBe(replica)
})

test('all masters are waited for, however slowly they answer', async () => {
  await using cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  await Promise.all(cluster.servers.map((server) => server.pause()))
  const masters = cluster.masters()
  await setTimeout(700)
  for (const server of cluster.servers) server.resume()
  expect(await masters).toHaveLength(3)
})
