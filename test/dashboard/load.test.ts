import { setTimeout as sleep } from 'node:timers/promises'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createDashboard } from '../../src/dashboard/index.ts'
import { connect } from '../../src/index.ts'
import { openSqlite } from '../cli/stores.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { startBrowser, visit } from './browser.ts'
import { serve } from './dashboard-server.ts'

let browser: Browser
beforeAll(async () => {
  browser = await startBrowser()
})
afterAll(() => browser.close())

test.each([
  ['sqlite', openSqlite],
  ['redis', startRedis],
  ['postgres', startPostgres],
])(
  'under load on %s the page shows holders and waiters each second, and its numbers and lines are those of the load',
  async (_, open) => {
    await using store = await open()
    const [shown, other] = await Promise.all(['web-1', 'web-2'].map((label) => connect(store.url, { label })))
    if (shown === undefined || other === undefined) throw new Error('Expected two clients')
    const dashboard = createDashboard(shown)
    await using server = await serve(dashboard)
    const end = new AbortController()
    let turns = 0
    // Six callers want each of four keys, so five of them wait for each key.
    const load = Array.from({ length: 24 }, async (_, at) => {
      const locks = at < 12 ? shown : other
      while (!end.signal.aborted) {
        await locks.withLock(`load:${at % 4}`, async () => {
          turns += 1
          await sleep(10)
        })
      }
    })
    await using _load = {
      async [Symbol.asyncDispose]() {
        end.abort()
        await Promise.all(load)
        await Promise.all([shown.close(), other.close()])
      },
    }
    await using visited = await visit(browser, server.url)
    const { page } = visited
    const row = page.getByRole('row', { name: 'load:2' })
    await row.waitFor()
    const fence = async () => BigInt((await row.locator('.fence').textContent()) ?? 0)
    const first = await fence()
    await until('it is told of a later holder', async () => (await fence()) > first)
    await until(
      'it is told of the queue',
      async () => Number(await row.locator('.waiting').textContent()) > 1,
    )
    await until('hand-overs are counted', async () => (await statistic(page, 'hand-overs / min')) > 10)
    await until('many wait', async () => (await statistic(page, 'waiting')) > 4)
    expect(await statistic(page, 'keys')).toBe(4)
    // The charts show contention over time, of all keys and of this key.
    for (const chart of ['.statistic', 'td.trend'])
      await until(
        `there are lines in ${chart}`,
        async () => (await page.locator(`${chart} path.line[d*=L]`).count()) >= 2,
      )

    await page.getByRole('link', { name: 'load:2' }).click()
    await page.getByText(/^1 holding, \d+ waiting/).waitFor()
    await until('the hand-overs are drawn', async () => (await page.locator('.picture .bar').count()) > 2)
    const queue = page.getByRole('table', { name: 'Queue' })
    await until('how long they wait is told', async () =>
      /web-[12].*(<1|\d)s/.test((await queue.textContent()) ?? ''),
    )
    // The dashboard only reads, so it does not hold up the load.
    const before = turns
    await until('the load goes on', () => turns > before + 100)

    end.abort()
    await page.getByText('free', { exact: true }).waitFor()
    expect(visited.wrongs).toEqual([])
    await dashboard.close()
  },
)

async function statistic(page: Page, title: string): Promise<number> {
  const text = await page.locator('.statistic', { hasText: title }).locator('strong').textContent()
  return Number(text?.replaceAll(',', ''))
}
