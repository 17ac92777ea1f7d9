import { afterAll, describe, test } from 'vitest'
import { startPostgres } from '../../servers/postgres-server.ts'
import { groupCases } from './group-cases.ts'
import { groupStage } from './group-stage.ts'

const server = await startPostgres({ settings: { synchronous_commit: 'off' } })
const stage = await groupStage(server.url)
afterAll(async () => {
  await stage[Symbol.asyncDispose]()
  await server.close()
})

describe('waiters in groups', () => {
  for (const { name, run } of groupCases(stage)) test(name, { timeout: 60_000 }, run)
})
