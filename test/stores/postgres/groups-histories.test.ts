import { afterAll, beforeAll, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { PROCESSES, sameFateInGroups } from '../group-histories.ts'
import { groupStage } from './group-stage.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres({ settings: { synchronous_commit: 'off' } })
})
afterAll(() => server?.close())

test.each([
  ['that hear messages', true],
  ['that hear none', false],
])(
  'waiters of processes %s have the same fate in groups and alone',
  async (_, listen) => {
    await using inGroups = await groupStage(server.url)
    await using alone = await groupStage(server.url)
    const pairs = Array.from({ length: PROCESSES }, () => ({
      groups: inGroups.newStore({ leastGroup: 2 }),
      alone: alone.newStore({ leastGroup: Number.POSITIVE_INFINITY }),
    }))
    if (listen)
      for (const pair of pairs) for (const store of [pair.groups, pair.alone]) await store.listen?.(() => {})
    const pass = async (ms: number): Promise<void> => {
      await Promise.all([inGroups.pass(ms), alone.pass(ms)])
    }
    await sameFateInGroups({ pairs, pass, moves: true, histories: 30 })
  },
  600_000,
)
