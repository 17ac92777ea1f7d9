import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { openSqlite } from '../cli/stores.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'

const PROGRAM = fileURLToPath(new URL('candidate-process.ts', import.meta.url))

interface Told {
  readonly what: string
  readonly fence: bigint
}

class Candidate {
  readonly name: string
  readonly told: Told[] = []
  readonly process: ChildProcess

  constructor(url: string, name: string) {
    this.name = name
    this.process = fork(PROGRAM, [url, name], { execArgv: ['--import', 'tsx'], serialization: 'advanced' })
    this.process.on('message', (message) => this.told.push(message as Told))
    onTestFinished(() => {
      this.process.kill('SIGKILL')
    })
  }

  get leads(): boolean {
    return this.process.signalCode === null && this.told.at(-1)?.what === 'leads'
  }

  get fence(): bigint {
    return this.told.at(-1)?.fence ?? -1n
  }
}

test.each([
  ['sqlite', openSqlite],
  ['redis', startRedis],
  ['postgres', startPostgres],
] as const)(
  'on %s the next one leads when the leader is killed, paused, or ended politely, and everybody can see it',
  { timeout: 60_000 },
  async (_, open) => {
    await using store = await open()
    await using locks = await connect(store.url)
    const seen: { name: string | undefined; fence: bigint }[] = []
    const observing = (async () => {
      for await (const leader of locks.election('service').observe()) {
        if (leader !== null) seen.push({ name: leader.value, fence: leader.fence })
      }
    })().catch(() => {})
    const candidates = ['a', 'b', 'c', 'd'].map((name) => new Candidate(store.url, name))
    const leader = () => candidates.find(({ leads }) => leads)
    const next = async (after: Candidate) => {
      await until('another one leads', () => candidates.some((one) => one !== after && one.leads))
      const found = candidates.find((one) => one !== after && one.leads)
      expect(found?.fence).toBeGreaterThan(after.fence)
      await until('it is seen', () => seen.at(-1)?.fence === found?.fence)
      return found as Candidate
    }

    await until('somebody leads', () => leader() !== undefined)
    await until('all of them campaign', async () => {
      const { value: room } = await locks.inspect({ prefix: 'service', pageSize: 1 }).next()
      return room?.queue.length === 3
    })
    const first = leader() as Candidate

    let since = performance.now()
    first.process.kill('SIGKILL')
    const second = await next(first)
    expect(performance.now() - since).toBeLessThan(6000)

    second.process.kill('SIGSTOP')
    const third = await next(second)
    second.process.kill('SIGCONT')
    await until('the paused one knows that it leads no more', () => second.told.at(-1)?.what === 'lease-lost')

    expect(await locks.election('service').requestStepDown({ reason: 'test' })).toBe(true)
    const fourth = await next(third)
    expect(third.told.at(-1)?.what).toBe('step-down')

    since = performance.now()
    fourth.process.kill('SIGTERM')
    await next(fourth)
    expect(performance.now() - since).toBeLessThan(2000)
    await until('it has ended', () => fourth.process.exitCode !== null)
    expect(fourth.process.exitCode).toBe(0)
    expect(fourth.told.at(-1)?.what).toBe('step-down')

    expect(seen.map(({ name }) => name)).toEqual(
      [first, second, third, fourth, leader()].map((one) => one?.name),
    )
    await locks.close()
    await observing
  },
)
