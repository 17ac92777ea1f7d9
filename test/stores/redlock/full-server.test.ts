import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { startMasters } from './masters.ts'

test('a server that refuses writes is asked to release again with growing pauses, and has nothing left when it takes them', async () => {
  await using masters = await startMasters(3)
  const store = masters.store()
  await masters.meet(store)
  const [, , full] = masters.servers
  const scripts = async (): Promise<number> =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(await full?.command('INFO', 'commandstats')))?.[1] ?? 0)
  await full?.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
  await full?.command('CONFIG', 'SET', 'maxmemory', '1')
  const before = await scripts()
  for (let round = 0; round < 5; round += 1) {
    const mine = ticket()
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
  }
  await sleep(3000)
  // Five votes, five releases, and each release up to seven times more. Without the pauses it was thousands.
  expect((await scripts()) - before).toBeLessThan(100)
  await full?.command('CONFIG', 'SET', 'maxmemory', '0')
  const mine = ticket()
  fenceOf(await store.acquire(mine))
  await masters.untilAllHave(mine)
  await store.close()
})
