import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { type Random, seededRandom } from '../../../src/testing/random.ts'
import { bundled } from '../../servers/bundled.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startMasters } from './masters.ts'
import type { TakenLease, WorkerReport } from './processes/torture-worker.ts'

const PROGRAM = await bundled(new URL('processes/torture-worker.ts', import.meta.url))
const PROCESSES = 4
const MAX_TTL_MS = 1200
const KEYS = ['key 0', 'key 1']
/** The length of the test. On a busy machine it lasts until there were enough faults and writes. `HOLDFAST_TORTURE_SECONDS=180` makes a longer run. */
const SECONDS = Number(process.env['HOLDFAST_TORTURE_SECONDS'] ?? 10)

const children = new Set<ChildProcess>()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const child of children) child.kill('SIGKILL')
  })
}

test('servers that are killed, flushed and stopped under load from four processes: no fence twice, none lower than before, no guarded write lost, and no standstill', {
  timeout: (SECONDS + 240) * 1000,
}, async () => {
  const seed = crypto.randomUUID()
  await using masters = await startMasters(5)
  await using register = await startRedis()
  const args = [masters.urls.join(','), register.url, `${MAX_TTL_MS}ms`]
  const workers = await Promise.all(Array.from({ length: PROCESSES }, () => startProcess(args)))
  const endsAt = performance.now() + SECONDS * 1000
  const written = async (): Promise<number> => {
    const numbers = await Promise.all(KEYS.map((key) => register.command('GET', `number of ${key}`)))
    return numbers.reduce<number>((sum, number) => sum + Number(number), 0)
  }
  const faults = await torment(masters.servers, seededRandom(seed), {
    isEnough: async (soFar) => soFar >= 3 && performance.now() > endsAt && (await written()) > 5 * SECONDS,
  })
  const reports = await Promise.all(workers.map(stop))
  const leases = reports.flatMap((report) => report.leases)
  const failures = reports.map((report) => report.failures)
  const summary = { seed, faults, leases: leases.length, failures, longestPauseMs: longestPause(leases) }
  if (SECONDS > 10) process.stdout.write(`${JSON.stringify(summary)}\n`)

  for (const key of KEYS) {
    const taken = leases.filter((lease) => lease.key === key)
    expect(inversionsOf(taken), JSON.stringify(summary)).toEqual([])
    expect(new Set(taken.map(({ fence }) => fence)).size, JSON.stringify(summary)).toBe(taken.length)
    const writes = taken.flatMap(({ wrote }) => wrote ?? []).sort((one, other) => one - other)
    const final = Number(await register.command('GET', `number of ${key}`))
    // No write was lost, and each write was made of the number before it.
    expect(new Set(writes).size, JSON.stringify(summary)).toBe(writes.length)
    expect(final, JSON.stringify(summary)).toBe(writes.length)
  }
  // A quorum lived all the time. A lease stays for its ttl when its process loses a server, and a busy machine takes
  // its time.
  expect(longestPause(leases), JSON.stringify(summary)).toBeLessThan(8000)
})

/**
 * Lets one server forget or die. While that server does not count, another one hangs. So at most two of five are
 * missing.
 */
async function torment(
  servers: readonly RedisServer[],
  random: Random,
  { isEnough }: { isEnough(faults: number): Promise<boolean> },
): Promise<number> {
  let faults = 0
  while (!(await isEnough(faults))) {
    const [victim, other] = pickTwo(servers, random)
    if (random.chance(0.75)) {
      await victim.kill()
      await sleep(random.between(50, 500))
      await victim.restart()
    } else await victim.command('FLUSHALL')
    if (random.chance(0.7)) {
      await other.pause()
      await sleep(random.between(50, 700))
      other.resume()
    }
    // The votes of the victim count again only after this pause.
    await sleep(MAX_TTL_MS + 500)
    faults += 1
  }
  return faults
}

function pickTwo(servers: readonly RedisServer[], random: Random): [RedisServer, RedisServer] {
  const victim = random.pick(servers)
  return [victim, random.pick(servers.filter((server) => server !== victim))]
}

/** The fences that are not above a fence that was complete before they were asked for. */
function inversionsOf(leases: readonly TakenLease[]): readonly TakenLease[] {
  const ended = [...leases].sort((one, other) => one.endedAt - other.endedAt)
  const began = [...leases].sort((one, other) => one.beganAt - other.beganAt)
  let complete = 0
  let highest = 0n
  return began.filter(({ beganAt, fence }) => {
    for (; (ended[complete]?.endedAt ?? Number.POSITIVE_INFINITY) < beganAt; complete += 1) {
      const earlier = BigInt(ended[complete]?.fence ?? 0)
      if (earlier > highest) highest = earlier
    }
    return BigInt(fence) <= highest
  })
}

function longestPause(leases: readonly TakenLease[]): number {
  const times = leases.map(({ wallMs }) => wallMs).sort((one, other) => one - other)
  return Math.max(...times.slice(1).map((time, index) => time - (times[index] ?? time)))
}

async function startProcess(args: readonly string[]): Promise<ChildProcess> {
  const child = fork(PROGRAM, args, { execArgv: [] })
  children.add(child)
  child.once('exit', () => children.delete(child))
  await once(child, 'message', { signal: AbortSignal.timeout(120_000) })
  return child
}

async function stop(child: ChildProcess): Promise<WorkerReport> {
  const told = once(child, 'message', { signal: AbortSignal.timeout(120_000) })
  child.send('stop')
  const [report] = (await told) as [WorkerReport]
  return report
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
