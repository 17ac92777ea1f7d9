import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Registry } from 'prom-client'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { stringify } from 'yaml'
import { createLocks } from '../../src/index.ts'
import { type MeasureWorkOptions, measureWork } from '../../src/observe/prometheus/index.ts'
import { createPartition } from '../../src/partition/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { createLockWorker } from '../../src/worker/index.ts'
import { closeSharedServer, openProxied, openScene } from '../jobs/scene.ts'
import { Stage } from '../schedule/stage.ts'
import { bundled } from '../servers/bundled.ts'
import { ensureBinary } from '../servers/install.ts'
import { until } from '../servers/until.ts'

const rules = fileURLToPath(new URL('../../src/observe/prometheus/alert-rules.yml', import.meta.url))
const script = await bundled(new URL('working.ts', import.meta.url))
let promtool: string
beforeAll(() => {
  promtool = ensureBinary('promtool', { packageName: 'prometheus' })
})
afterAll(closeSharedServer)

test('a job that no worker takes is alerted of, and a delayed one is not', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const { scrape } = measured({ jobs })
  await jobs.enqueue('late', 1, { delay: '1h' })
  await jobs.enqueue('mail')
  const fresh = await scrape()
  await scene.sql(
    `update $schema.jobs set ready_at = ready_at - interval '10 min', enqueued_at = enqueued_at - interval '1 day'`,
  )
  const old = await scrape()
  const worker = jobs.work({ mail: () => {} })
  await until('it is done', async () => (await jobs.backlog()).every(({ state }) => state === 'delayed'))
  await worker.stop()
  expect(alerts('HoldfastJobsWait', [fresh, old, await scrape()])).toEqual(['', 'job="mail"', ''])
})

test('a job that dies is alerted of for a while, also if its workers died and told nobody', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const { scrape } = measured({ jobs })
  await jobs.enqueue('mail', 1, { maxAttempts: 1 })
  const before = await scrape()
  await jobs.claim('mail')
  await scene.sql(`update $schema.jobs set due_at = due_at - interval '1 min'`)
  await until('its lease has ended, and it is dead', async () => {
    await jobs.claim('mail')
    return (await jobs.backlog()).some(({ state }) => state === 'dead')
  })
  const dead = await scrape()
  expect(alerts('HoldfastJobsDead', [before, dead, dead, dead])).toEqual(['', 'job="mail"', '', ''])
  const unheardOf = before.filter(([series]) => !series.startsWith('holdfast_jobs{'))
  expect(alerts('HoldfastJobsDead', [unheardOf, dead, dead, dead])).toEqual(['', 'job="mail"', '', ''])
})

test('a database that is silent is alerted of, and so are processes that are gone', async () => {
  await using proxied = await openProxied()
  const { scene, proxy, url } = proxied
  const jobs = scene.open({}, { url })
  const { scrape } = measured({ jobs, timeout: 200 })
  // A busy machine may need longer than the time-out for an answer.
  const heard = await until('the database is heard', async () => {
    const found = await scrape()
    return found.some(([series, value]) => series === 'holdfast_jobs_answered' && value === '1') && found
  })
  proxy.holdReplies()
  const silent = await scrape()
  proxy.normal()
  expect(alerts('HoldfastJobsUnseen', [heard, silent, heard])).toEqual(['', 'severity="critical"', ''])
  expect(alerts('HoldfastJobsUnseen', [heard, []])).toEqual(['', 'severity="critical"'])
})

test.each([
  ['HoldfastStoreRefuses', 'holdfast_store_errors_total', 'outcome="refused", store="redis", verb="acquire"'],
  ['HoldfastLeaseLost', 'holdfast_losses_total', 'group="invoice", reason="expired", store="redis"'],
])('%s also tells of the first one of a process that has just started, and once', (alert, name, labels) => {
  const first: Scrape = [[`${name}{${labels.replaceAll(', ', ',')}}`, '1']]
  const shown = labels.replace('outcome="refused", ', '')
  expect(alerts(alert, [[], first, first])).toEqual(['', shown, ''])
})

test('jobs that fail are alerted of, as long as more than a fifth of the attempts do', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const { scrape } = measured({})
  let isBroken = false
  const worker = jobs.work(
    {
      mail: () => {
        if (isBroken) throw new Error('broken')
      },
    },
    { onFailure: () => {} },
  )
  const run = async () => {
    for (let count = 0; count < 5; count += 1) await jobs.enqueue('mail', 1, { maxAttempts: 1 })
    await until('all are done', async () => (await jobs.backlog()).every(({ state }) => state === 'dead'))
    // The metrics hear of the end after the database has answered.
    await until('the worker knows it', () => worker.jobCount === 0)
    return scrape()
  }
  const good = [await run(), await run()]
  isBroken = true
  const bad = [await run(), await run()]
  await worker.stop()
  const found = alerts('HoldfastJobsFail', [...good, ...bad], { rising: true })
  expect(found).toEqual(['', '', '', 'job="mail"'])
})

test('a lock worker may hold its key, and another one wait for it, as long as they live', async () => {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  const { scrape } = measured({})
  const worker = createLockWorker(locks, 'import', { start: () => {}, stop: () => {} })
  worker.start()
  const works = await until('it works', async () => {
    const found = await scrape()
    return (
      found.some(([series, value]) => series.startsWith('holdfast_workers_working') && value === '1') && found
    )
  })
  await worker.stop()
  for (const [alert, series] of [
    ['HoldfastLongHold', 'holdfast_oldest_hold_seconds{store="memory",group="import"}'],
    ['HoldfastLongWait', 'holdfast_oldest_wait_seconds{store="memory",group="import"}'],
  ] as const) {
    expect(alerts(alert, [[[series, '4000']]])).toEqual([expect.stringContaining('group="import"')])
    expect(alerts(alert, [[[series, '4000'], ...works]])).toEqual([''])
  }
})

test('keys of a partition whose work cannot start are alerted of', async () => {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  const { scrape, text } = measured({})
  let brokenKeys = [0, 1, 2, 3]
  const partition = createPartition(locks, 'queues', {
    partitions: 4,
    backoff: 50,
    maxBackoff: 50,
    start: ({ key }) => {
      if (brokenKeys.includes(Number(key))) throw new Error('cannot start')
    },
    stop: () => {},
    onError: () => {},
  })
  partition.start()
  await until('it has its share', async () => /partition_size.* 4$/m.test(await text()))
  const none = await scrape()
  brokenKeys = [2]
  await until('the others have started', async () => /partition_keys.* 3$/m.test(await text()))
  const broken = await scrape()
  brokenKeys = []
  await until('all have started', async () => /partition_keys.* 4$/m.test(await text()))
  const whole = await scrape()
  await partition.stop()
  expect(alerts('HoldfastPartitionLeftOut', [whole, broken, whole])).toEqual(['', 'partition="queues"', ''])
  expect(alerts('HoldfastPartitionLeftOut', [none, whole])).toEqual(['partition="queues"', ''])
})

test('runs that fail, ticks that overlap and work that cannot start are alerted of, also if a process is new', async () => {
  const roles = ['fails', 'overlaps', 'works', 'worker'] as const
  const running = await Promise.all(roles.map((role) => working(role)))
  const [fails, overlaps, works, worker] = running as [Working, Working, Working, Working]
  const failed = await fails.seen(/^holdfast_ticks_total\{.*outcome="failed"\} [1-9]/m)
  const overlapped = await overlaps.seen(/^holdfast_ticks_total\{.*outcome="overlapped"\} [1-9]/m)
  const well = await works.seen(/^holdfast_ticks_total\{.*outcome="ok"\} [1-9]/m)
  const ended = await worker.seen(/^holdfast_worker_terms_total\{.*outcome="failed"\} ([3-9]|\d\d)/m)
  // Prometheus has never seen these processes count 0.
  expect(alerts('HoldfastRunsFail', [[], failed, failed])).toEqual(['', 'schedule="mails"', ''])
  expect(alerts('HoldfastTicksMissed', [[], overlapped, overlapped])).toEqual(['', 'schedule="mails"', ''])
  expect(alerts('HoldfastWorkerFails', [[], ended, ended])).toEqual(['', 'worker="orders"', ''])
  // A process that was known before: its counters rise.
  expect(alerts('HoldfastRunsFail', [well, failed, failed, failed])).toEqual(['', 'schedule="mails"', '', ''])
  for (const name of ['HoldfastRunsFail', 'HoldfastTicksMissed', 'HoldfastWorkerFails'])
    expect(alerts(name, [[], well, well])).toEqual(['', '', ''])
})

test('a tick that no process ran is alerted of, although the process that tells of it is new', async () => {
  // Of the process that ends: without a listener nobody judges ticks.
  measured({})
  const stage = new Stage('2027-01-15T08:00:30Z')
  const starts = (name: string) => {
    const member = stage.member(name)
    member.schedule.add('report', '*/10 * * * *', stage.work(member, 0))
    member.schedule.start()
    return member.schedule
  }
  const first = starts('first')
  await stage.clock.advance(20 * 60_000)
  await stage.clock.until(first.stop())
  await stage.clock.advance(32 * 60_000)
  // The first process of a new deployment: its registry is empty.
  const { scrape } = measured({})
  starts('second')
  await stage.clock.advance(20 * 60_000)
  const told = await scrape()
  expect(told.find(([series]) => series.includes('outcome="missed"'))?.[1]).toBe('3')
  expect(alerts('HoldfastTicksMissed', [[], told, told])).toEqual(['', 'schedule="report"', ''])
})

interface Working {
  /** The metrics, once they have this. */
  seen(pattern: RegExp): Promise<Scrape>
}

async function working(role: string): Promise<Working> {
  const child = spawn(process.execPath, [script, role], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  const metrics = async () => (await fetch(`http://127.0.0.1:${Number(String(line))}`)).text()
  return {
    async seen(pattern) {
      const text = await until(`it counts ${pattern}`, async () => {
        const found = await metrics()
        return pattern.test(found) ? found : undefined
      })
      return scrapeOf(text)
    },
  }
}

/** What Prometheus would store: each series and its value. */
type Scrape = readonly (readonly [series: string, value: string])[]

function measured(options: Omit<MeasureWorkOptions, 'registry'>) {
  const registry = new Registry()
  onTestFinished(measureWork({ registry, ...options }))
  const text = () => registry.metrics()
  return {
    text,
    async scrape(): Promise<Scrape> {
      return scrapeOf(await text())
    },
  }
}

function scrapeOf(text: string): Scrape {
  const found = text.matchAll(/^(holdfast_\w+(?:\{[^}]*\})?) (\S+)$/gm)
  return Array.from(found, ([, series = '', value = '']) => [series, value])
}

/**
 * The last label of the alert at the end of each phase; empty: it does not fire. Each phase lasts ten minutes. Prometheus finds the same
 * at each of its scrapes; `rising`: the values rise evenly to those of the phase.
 */
function alerts(
  alertname: string,
  phases: readonly Scrape[],
  { rising = false }: { readonly rising?: boolean } = {},
): readonly string[] {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-alerts-'))
  try {
    copyFileSync(rules, join(folder, 'rules.yml'))
    const names = new Set(phases.flatMap((phase) => phase.map(([series]) => series)))
    const input_series = Array.from(names, (series) => ({ series, values: valuesOf(series, phases, rising) }))
    return phases.map((_, phase) => {
      const alert = { eval_time: `${(phase + 1) * SCRAPES - 1}m`, alertname, exp_alerts: [] }
      const tests = [{ interval: '1m', input_series, alert_rule_test: [alert] }]
      writeFileSync(join(folder, 'test.yml'), stringify({ rule_files: ['rules.yml'], tests }))
      const { stdout, stderr } = spawnSync(promtool, ['test', 'rules', 'test.yml'], {
        cwd: folder,
        encoding: 'utf8',
      })
      const said = `${stdout}${stderr}`
      expect(said).toMatch(/SUCCESS|FAILED/)
      const [, labels = ''] = /got:\s*\[\s*\S*\s*Labels:\{([^}]*)\}/.exec(said) ?? []
      const kept = labels.split(', ').filter((label) => !/^(alertname|severity)=/.test(label))
      return kept.join(', ') || (labels === '' ? '' : 'severity="critical"')
    })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function valuesOf(series: string, phases: readonly Scrape[], rising: boolean): string {
  let last = 0
  return phases
    .map((phase) => {
      const value = phase.find(([name]) => name === series)?.[1]
      // A target that is gone gets a stale mark at once.
      if (value === undefined) return `stale _x${SCRAPES - 1}`
      if (!rising) return `${value}x${SCRAPES - 1}`
      const step = (Number(value) - last) / SCRAPES
      const from = last + step
      last = Number(value)
      return `${from}${step < 0 ? '' : '+'}${step}x${SCRAPES - 1}`
    })
    .join(' ')
}

const SCRAPES = 10
