import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { stringify } from 'yaml'
import { connect, type Locks } from '../../src/index.ts'
import { bundled } from '../servers/bundled.ts'
import { ensureBinary } from '../servers/install.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'

const rules = fileURLToPath(new URL('../../src/observe/prometheus/alert-rules.yml', import.meta.url))
const script = await bundled(new URL('candidate.ts', import.meta.url))

let promtool: string
let server: RedisServer
let locks: Locks
let fleet: Candidate[]
beforeAll(async () => {
  promtool = ensureBinary('promtool', { packageName: 'prometheus' })
  server = await startRedis()
  locks = await connect(server.url)
  fleet = []
})
afterEach(async () => {
  for (const candidate of fleet.splice(0)) await candidate.kill()
  await server.command('FLUSHALL')
})
afterAll(async () => {
  await locks.close()
  await server.close()
})

test('the rules are valid for Prometheus', () => {
  const { status, stdout, stderr } = spawnSync(promtool, ['check', 'rules', rules], { encoding: 'utf8' })
  expect([status, stderr]).toEqual([0, ''])
  expect(stdout).toContain('SUCCESS')
})

test('while somebody leads, and when another candidate takes over, no alert fires', async () => {
  const both = [await candidate('a', ['scheduler']), await candidate('b', ['scheduler'])]
  const leader = await leaderOf(both, 'scheduler')
  const before = await scrape(both)
  await leader.kill()
  const rest = both.filter((one) => one !== leader)
  await leaderOf(rest, 'scheduler')
  expect(alertsIn([before, await scrape(rest)])).toEqual([[], []])
})

test('when all candidates are gone, and their series with them, the alert fires and stays', async () => {
  const both = [await candidate('a', ['scheduler']), await candidate('b', ['scheduler'])]
  await leaderOf(both, 'scheduler')
  const before = await scrape(both)
  for (const one of both) await one.kill()
  expect(alertsIn([before, [], []])).toEqual([[], ['scheduler'], ['scheduler']])
})

test('a fleet whose candidates have never led is alerted of', async () => {
  const other = await locks.acquire('scheduler', { ttl: '1m' })
  const waiting = [await candidate('a', ['scheduler']), await candidate('b', ['scheduler'])]
  await until('they wait', async () => (await locks.peek('scheduler'))?.queue.length === 2)
  const before = await scrape(waiting)
  await other.release()
  await leaderOf(waiting, 'scheduler')
  expect(alertsIn([before, await scrape(waiting)])).toEqual([['scheduler'], []])
})

test('the leader of one election does not hide that another one of its group has none', async () => {
  const kept = await candidate('a', ['cron:mails'])
  const lost = await candidate('b', ['cron:reports'])
  await leaderOf([kept], 'cron:mails')
  await leaderOf([lost], 'cron:reports')
  const before = await scrape([kept, lost])
  await lost.kill()
  expect(alertsIn([before, await scrape([kept])])).toEqual([[], ['cron:reports']])
})

interface Candidate {
  readonly name: string
  metrics(): Promise<string>
  kill(): Promise<void>
}

async function candidate(name: string, elections: readonly string[]): Promise<Candidate> {
  const child: ChildProcess = spawn(process.execPath, [script, server.url, ...elections], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  const made = {
    name,
    metrics: async () => (await fetch(`http://127.0.0.1:${port}`)).text(),
    async kill() {
      child.kill('SIGKILL')
      await ended
    },
  }
  fleet.push(made)
  const [line] = (await once(child.stdout as NonNullable<ChildProcess['stdout']>, 'data')) as [Buffer]
  const port = Number(String(line))
  return made
}

async function leaderOf(candidates: readonly Candidate[], election: string): Promise<Candidate> {
  return until(`somebody leads ${election}`, async () => {
    for (const one of candidates)
      if (new RegExp(`^holdfast_leading\\{.*election="${election}"\\} 1$`, 'm').test(await one.metrics()))
        return one
    return undefined
  })
}

/** What Prometheus would store: each series with the instance it comes from, and its value. */
type Scrape = readonly (readonly [series: string, value: string])[]

async function scrape(candidates: readonly Candidate[]): Promise<Scrape> {
  const texts = await Promise.all(
    candidates.map(async ({ name, metrics }) => [name, await metrics()] as const),
  )
  return texts.flatMap(([name, text]) =>
    Array.from(
      text.matchAll(/^(holdfast_leading)\{(.*)\} (\S+)$/gm),
      ([, metric, labels, value = '']) => [`${metric}{${labels},instance="${name}"}`, value] as const,
    ),
  )
}

/** The elections that are alerted of at the end of each phase. Each phase lasts ten minutes, in which Prometheus finds the same. */
function alertsIn(phases: readonly Scrape[]): readonly (readonly string[])[] {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-alerts-'))
  try {
    copyFileSync(rules, join(folder, 'rules.yml'))
    const names = new Set(phases.flatMap((phase) => phase.map(([series]) => series)))
    const inputs = Array.from(names, (series) => ({
      series,
      values: phases
        .map((phase) => phase.find(([name]) => name === series)?.[1])
        // A target that is gone gets a stale mark at once.
        .map((value) => (value === undefined ? `stale _x${SCRAPES - 1}` : `${value}x${SCRAPES - 1}`))
        .join(' '),
    }))
    const elections = new Set(Array.from(names, (series) => /election="([^"]*)"/.exec(series)?.[1] ?? ''))
    return phases.map((_, phase) =>
      [...elections].filter((election) => {
        const group = election.split(':')[0]
        const alert = {
          eval_time: `${(phase + 1) * SCRAPES - 1}m`,
          alertname: 'HoldfastNoLeader',
          exp_alerts: [],
        }
        const file = {
          rule_files: ['rules.yml'],
          tests: [{ interval: '1m', input_series: inputs, alert_rule_test: [alert] }],
        }
        writeFileSync(join(folder, 'test.yml'), stringify(file))
        const { stdout, stderr } = spawnSync(promtool, ['test', 'rules', 'test.yml'], {
          cwd: folder,
          encoding: 'utf8',
        })
        const said = `${stdout}${stderr}`
        expect(said).toMatch(/SUCCESS|FAILED/)
        return said.includes(`election="${election}", group="${group}"`)
      }),
    )
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const SCRAPES = 10
