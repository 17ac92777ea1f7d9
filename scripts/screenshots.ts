// Shows the dashboard as its users see it: starts a Redis server, some processes that hold, wait for and lose keys, a PostgreSQL
// server with jobs, and a dashboard, and takes a picture of every view. Look at the pictures after each change of the page.
//
//   npm run screenshots [-- <folder>]      (default: .screenshots)
//
// The folder gets <view>-<desktop|phone>-<light|dark>.png.
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Browser, chromium, type Page } from 'playwright-core'
import { createDashboard } from '../src/dashboard/index.ts'
import type { PartitionsJson } from '../src/dashboard/view-json.ts'
import { connect } from '../src/index.ts'
import { type Jobs, openJobs } from '../src/jobs/index.ts'
import { ensureBinary } from '../test/servers/install.ts'
import { startPostgres } from '../test/servers/postgres-server.ts'
import { startRedis } from '../test/servers/redis-server.ts'
import { until } from '../test/servers/until.ts'

const folder = process.argv[2] ?? '.screenshots'
const SCENE = fileURLToPath(new URL('screenshots-process.ts', import.meta.url))
const VIEWS: Readonly<Record<string, string>> = {
  keys: '#/keys',
  waiting: '#/keys?show=contended&sort=waiting',
  key: '#/key?key=stock%3Abook',
  late: '#/key?key=report%3Anightly',
  contention: '#/contention',
  leaders: '#/leaders',
  processes: '#/processes',
  partitions: '#/partitions',
  losses: '#/losses',
  tree: `#/keys?${new URLSearchParams({ as: 'tree', open: '["stock:"]' })}`,
  none: '#/keys?search=nobody-has-this',
  jobs: '#/jobs',
  dead: '#/jobs?state=dead',
}

/** What a person does on a page before its picture is taken. */
const ACTS: Readonly<Record<string, (page: Page) => Promise<void>>> = {
  async selection(page) {
    for (const box of (await page.locator('tbody input[type=checkbox]').all()).slice(0, 3)) await box.check()
  },
  async evict(page) {
    await ACTS['selection']?.(page)
    await page
      .getByRole('button', { name: /^Evict/ })
      .first()
      .click()
    await page.waitForSelector('dialog[open]')
  },
  async 'selection-jobs'(page) {
    await ACTS['selection']?.(page)
  },
  async help(page) {
    await page.keyboard.press('?')
    await page.waitForSelector('dialog[open]')
  },
  async job(page) {
    await page.locator('tbody td.id a').first().click()
    await page.waitForURL(/#\/job\?/)
    await page.getByText('The printer has no paper').first().waitFor()
  },
}
const ACTED_ON: Readonly<Record<string, string>> = {
  selection: '#/keys',
  evict: '#/keys',
  help: '#/keys',
  'selection-jobs': '#/jobs?state=dead',
  job: '#/jobs?state=dead',
}

/** The last one comes later than the others, which do not hand their keys over to it at once. */
const SHARING = ['share', 'share', 'share', 'share', 'share-later']

interface Scene {
  readonly browser: Browser
  readonly url: string
}

async function main(): Promise<void> {
  mkdirSync(folder, { recursive: true })
  await using redis = await startRedis()
  await using locks = await connect(redis.url, { label: 'dashboard' })
  await using postgres = await startPostgres()
  await using jobs = await openJobs(postgres.url)
  await workOn(jobs)
  const processes: ChildProcess[] = []
  const dashboard = createDashboard(locks, {
    jobs,
    allowEvict: true,
    allowJobChanges: true,
    record: true,
    title: 'Locks of a shop',
  })
  const server = createServer(dashboard).listen(0, '127.0.0.1')
  const browser = await chromium.launch({
    executablePath: ensureBinary('chromium-headless-shell'),
    args: ['--no-sandbox', '--disable-gpu'],
  })
  try {
    const roles = ['web', 'web', 'web', 'worker', 'worker', 'doomed', 'frozen', ...SHARING]
    processes.push(...roles.map((role) => play(role, redis.url)))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const held = async (key: string): Promise<boolean> => (await locks.peek(key)) !== null
    await until(
      'all processes hold their keys',
      async () => (await held('report:nightly')) && held('import:7'),
    )
    const isDivided = async (): Promise<boolean> => {
      const view = await (await fetch(`${url}api/view?view=partitions`)).json()
      const [partition] = (view as PartitionsJson).rows
      return partition?.members === SHARING.length && partition.moving > 0
    }
    await until('keys of a partition move', isDivided, { everyMs: 500 })
    processes[5]?.kill('SIGKILL')
    processes[6]?.kill('SIGSTOP')
    const hasLosses = async (): Promise<boolean> => {
      const { history } = (await (await fetch(`${url}api/view`)).json()) as { history: { expired: number } }
      return history.expired > 2
    }
    await until('some keys are lost', hasLosses, { everyMs: 500 })
    const isLate = async (): Promise<boolean> => {
      const view = await (await fetch(`${url}api/view?key=report:nightly`)).json()
      return (view as { holders: { lateMs?: number }[] }).holders[0]?.lateMs !== undefined
    }
    await until('a renewal is late', isLate, { everyMs: 500 })
    await shoot({ browser, url }, VIEWS)
    await shoot({ browser, url }, ACTED_ON)
    await redis.pause()
    const isAway = async (): Promise<boolean> =>
      ((await (await fetch(`${url}api/view`)).json()) as { store: { tag: string } }).store.tag === 'away'
    await until('the store is away', isAway, { everyMs: 500 })
    await shoot({ browser, url }, { away: '#/keys', 'away-key': '#/key?key=stock%3Abook' })
    redis.resume()
    for (const each of processes) each.kill('SIGKILL')
    await until('the store is back', async () => !(await isAway()), { everyMs: 500 })
    const many = Array.from({ length: 20_000 }, (_, n) =>
      locks.acquire(`tenant:${n % 100}:item:${n}`, { ttl: '10m' }),
    )
    await Promise.all(many)
    const keysSeen = async (): Promise<number> =>
      ((await (await fetch(`${url}api/view`)).json()) as { matching: number }).matching
    await until('all keys are seen', async () => (await keysSeen()) >= many.length, { everyMs: 500 })
    await shoot(
      { browser, url },
      {
        many: '#/keys',
        'many-page': '#/keys?page=99&sort=held',
        'many-tree': '#/keys?as=tree',
      },
    )
  } finally {
    for (const each of processes) each.kill('SIGKILL')
    await browser.close()
    await dashboard.close()
    server.close()
    server.closeAllConnections()
  }
}

/** Jobs of all states: ready, delayed, running, completed and dead. */
async function workOn(jobs: Jobs): Promise<void> {
  await jobs.migrate()
  for (let order = 1; order <= 60; order += 1) await jobs.enqueue('mail', { order, to: 'reader@example.org' })
  for (let order = 1; order <= 8; order += 1) await jobs.enqueue('invoice', { order }, { maxAttempts: 1 })
  jobs.work(
    {
      mail: () => {},
      invoice: ({ payload }) => {
        throw new Error(`The printer has no paper for order ${JSON.stringify(payload)}`)
      },
      export: () => new Promise(() => {}),
    },
    { onFailure: () => {} },
  )
  for (const year of [2024, 2025]) await jobs.enqueue('export', { year })
  await jobs.enqueue('reminder', { order: 7 }, { delay: '1h' })
  await jobs.enqueue('nobody-takes-this', { order: 8 })
  await until('the jobs are dead', async () =>
    (await jobs.backlog()).some(({ state, count }) => state === 'dead' && count === 8),
  )
}

function play(role: string, url: string): ChildProcess {
  return spawn(process.execPath, ['--import', 'tsx', SCENE, role, url], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}

async function shoot({ browser, url }: Scene, views: Readonly<Record<string, string>>): Promise<void> {
  for (const [device, viewport] of Object.entries(DEVICES)) {
    for (const colorScheme of ['light', 'dark'] as const) {
      const context = await browser.newContext({ viewport, colorScheme, deviceScaleFactor: 1 })
      context.setDefaultTimeout(120_000)
      const page = await context.newPage()
      for (const [name, place] of Object.entries(views)) {
        // A page of its own, as an open dialog stays when only the fragment changes.
        await page.goto('about:blank')
        await page.goto(url + place)
        await page.waitForSelector('.pill:not([data-state="opening"])')
        await page.waitForSelector(name === 'none' ? 'main' : 'tbody tr >> visible=true')
        // The numbers of jobs come after their list.
        if (place.startsWith('#/jobs')) await page.locator('.sums').filter({ hasNotText: '…' }).waitFor()
        await ACTS[name]?.(page)
        await page.screenshot({ path: join(folder, `${name}-${device}-${colorScheme}.png`) })
      }
      await context.close()
    }
  }
}

const DEVICES = { desktop: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } }

await main()
