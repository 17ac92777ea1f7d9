import { expect, test } from 'vitest'
import { startSentinels } from './redis-sentinel.ts'
import { until } from './until.ts'

test('a master that is killed is followed by its replica, and becomes a replica when it comes back', async () => {
  await using group = await startSentinels()
  const former = await group.master()
  expect(former).toBe(group.servers[0])
  await former.kill()
  const next = await group.successorOf(former)
  expect(next).toBe(group.servers[1])
  await former.restart()
  await until('the former master follows', async () => {
    // The demoted server closes all connections.
    const info = await former.command('INFO', 'replication').catch(() => '')
    return String(info).includes('role:slave')
  })
  expect(await group.master()).toBe(next)
})
