import pg from 'pg'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createDashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { createLocks } from '../../src/index.ts'
import { createJobs, type Jobs } from '../../src/jobs/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { accessibilityFaults, isTooWide, startBrowser, type Visit, visit } from './browser.ts'
import { ask, serve, type TestServer } from './dashboard-server.ts'

let browser: Browser
let postgres: Awaited<ReturnType<typeof startPostgres>>
let pool: pg.Pool
let jobs: Jobs
beforeAll(async () => {
  browser = await startBrowser()
  postgres = await startPostgres()
  pool = new pg.Pool({ connectionString: postgres.url })
  jobs = createJobs(pool)
  await jobs.migrate()
})
afterAll(async () => {
  await jobs.close()
  await pool.end()
  await postgres[Symbol.asyncDispose]()
  await browser.close()
})
beforeEach(async () => {
  await pool.query('truncate holdfast.jobs, holdfast.ended_jobs')
})

async function served(options: DashboardOptions = {}, store = memoryStore()): Promise<TestServer> {
  const locks = createLocks(store)
  const dashboard = createDashboard(locks, { jobs, ...options })
  const server = await serve(dashboard)
  return {
    ...server,
    async [Symbol.asyncDispose]() {
      await dashboard.close()
      await server[Symbol.asyncDispose]()
      await locks.close()
    },
  }
}

async function opened(
  place: string,
  options: DashboardOptions = {},
  { width = 1280, store = memoryStore() } = {},
): Promise<Visit> {
  const server = await served(options, store)
  const visited = await visit(browser, `${server.url}${place}`, { viewport: { width, height: 800 } })
  return {
    ...visited,
    async [Symbol.asyncDispose]() {
      await visited[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
      expect(visited.wrongs).toEqual([])
    },
  }
}

async function failOnce(name: string, payload: object, error: unknown): Promise<string> {
  const id = await jobs.enqueue(name, payload, { maxAttempts: 1 })
  const [job] = await jobs.claim(name, { label: 'worker-7' })
  await job?.fail(error)
  return String(id)
}

const names = (page: Page) => page.locator('.jobs td.key').allTextContents()

describe('the page of jobs', () => {
  test('shows them newest first, by pages, with their numbers, and no payload', async () => {
    await jobs.enqueueAll(Array.from({ length: 120 }, (_, n) => ({ name: `mail-${n}` })))
    await failOnce('<b>bill</b>', { card: 'secret' }, 'no such card')
    await using visited = await opened('#/jobs')
    const { page } = visited
    const dead = page.getByRole('row', { name: '<b>bill</b>' })
    await dead.waitFor()
    expect(await dead.textContent()).toMatch(/dead.*1 of 1.*worker-7.*no such card/)
    expect(await page.content()).not.toContain('secret')
    expect(await page.locator('main b').count()).toBe(0)
    expect((await names(page)).slice(0, 3)).toEqual(['<b>bill</b>', 'mail-119', 'mail-118'])
    await page.getByRole('link', { name: '120 ready' }).waitFor()
    await page.getByText('121 enqueued', { exact: true }).waitFor()
    await page.getByText('1 dead', { exact: true }).first().waitFor()

    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText('page 2').waitFor()
    await until('the second page is shown', async () => (await names(page))[0] === 'mail-70')
    // A job that comes now does not move this page.
    await jobs.enqueue('new')
    await page.getByRole('button', { name: 'Next' }).click()
    await until('the last page is shown', async () => (await names(page))[0] === 'mail-20')
    expect(await page.getByRole('button', { name: 'Next' }).isDisabled()).toBe(true)
    await page.getByRole('button', { name: 'Previous' }).click()
    await until('the second page is shown', async () => (await names(page))[0] === 'mail-70')
    await page.getByRole('button', { name: 'Newest' }).click()
    await until('the first page is shown', async () => (await names(page))[0] === 'new')
  })

  test('filters by state, name, id and time, and keeps the filter in the address', async () => {
    const [one, other] = await jobs.enqueueAll([{ name: 'mail' }, { name: 'bill' }])
    await failOnce('post', {}, 'no such address')
    await using visited = await opened('#/jobs')
    const { page } = visited
    await until('all are shown', async () => (await names(page)).length === 3)
    await page.getByLabel('State').selectOption('dead')
    await until('one is shown', async () => (await names(page)).join() === 'post')
    expect(page.url()).toContain('state=dead')
    await page.getByLabel('State').selectOption('')
    await page.getByLabel('Name').fill('bill')
    await until('one is shown', async () => (await names(page)).join() === 'bill')
    await page.getByLabel('Name').fill('')
    await page.getByLabel('Ids').fill(`${one}, ${other}`)
    await until('two are shown', async () => (await names(page)).join() === 'bill,mail')
    await page.getByLabel('Ids').fill('x')
    await page.getByText('Expected `id` to be the id of a job, got "x".').waitFor()
    await page.getByLabel('Ids').fill('')
    await page.getByLabel('Enqueued', { exact: true }).selectOption('1h')
    await until('all are shown', async () => (await names(page)).length === 3)
    expect(page.url()).toContain('since=1h')
    await page.getByLabel('Enqueued', { exact: true }).selectOption('between')
    expect(page.url()).not.toContain('since=')
    await page.getByLabel('Enqueued to').fill('2020-01-01T00:00')
    await page.getByText('No job fits the filter.').waitFor()
    await page.reload()
    await page.getByText('No job fits the filter.').waitFor()
    expect(await page.getByLabel('Enqueued to').inputValue()).toBe('2020-01-01T00:00')
  })

  test('leads to the page of a job, with its payload, its attempts and their stacks', async () => {
    const id = await jobs.enqueue('mail', { to: '<b>me</b>' }, { maxAttempts: 2, backoff: 1 })
    for (const message of ['no such address', 'no route\nto the host']) {
      await until('it can be claimed', async () => {
        const [job] = await jobs.claim('mail', { label: 'worker-7' })
        await job?.fail(new Error(message))
        return job !== undefined
      })
    }
    await using visited = await opened('#/jobs')
    const { page } = visited
    await page.getByRole('link', { name: String(id), exact: true }).click()
    await page.getByRole('heading', { name: 'mail' }).waitFor()
    await page.getByText('"to": "<b>me</b>"').waitFor()
    const attempts = page.locator('details')
    expect(await attempts.count()).toBe(2)
    expect(await attempts.first().textContent()).toMatch(
      /attempt 2 failed at .* by worker-7.*no route\nto the host\n\s+at /s,
    )
    expect(await attempts.last().textContent()).toContain('no such address')
    expect(await page.locator('.facts').textContent()).toMatch(/2, 2 of 2 failed/)
    expect(await page.getByRole('button', { name: 'Retry…' }).count()).toBe(0)
    await page.goto(page.url().replace(/id=.*/, 'id=999999'))
    await page.getByText('There is no job of this id (any more).').waitFor()
  })

  test('fits a phone, and axe-core finds no fault', async () => {
    const id = await failOnce(
      'mail-to-a-customer-of-the-north',
      { to: 'x'.repeat(300) },
      new Error('y'.repeat(300)),
    )
    for (const place of ['#/jobs', `#/job?id=${id}`]) {
      await using visited = await opened(place, { allowJobChanges: true }, { width: 320 })
      await visited.page.getByText('mail-to-a-customer').first().waitFor()
      expect(await isTooWide(visited.page)).toBe(false)
      expect(await accessibilityFaults(visited.page), place).toEqual([])
    }
  })
})

describe('with allowJobChanges', () => {
  const allowed: DashboardOptions = { allowJobChanges: true }

  test('one job is retried, cancelled with a reason, and removed', async () => {
    const id = await failOnce('mail', {}, 'no such address')
    await using visited = await opened(`#/job?id=${id}`, allowed)
    const { page } = visited
    const act = async (action: string): Promise<void> => {
      await page.getByRole('button', { name: `${action}…` }).click()
      await page.getByRole('dialog').getByRole('button', { name: action }).click()
    }
    await page.getByRole('heading', { name: 'mail' }).waitFor()
    expect(await page.getByRole('button', { name: 'Cancel…' }).isDisabled()).toBe(true)
    await act('Retry')
    await page.getByText('Retried: 1 job.').waitFor()
    await page.locator('.state', { hasText: 'ready' }).waitFor()
    await page.getByRole('button', { name: 'Cancel…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Reason').fill('sent by hand')
    await dialog.getByRole('button', { name: 'Cancel' }).last().click()
    await page.getByText('Cancelled: 1 job.').waitFor()
    await page.getByText('sent by hand').waitFor()
    await act('Remove')
    await page.getByText('There is no job of this id (any more).').waitFor()
    expect(await jobs.find(id)).toBeNull()
  })

  test('a selection is changed after the action was typed', async () => {
    const ids = [await failOnce('a', {}, 'x'), await failOnce('b', {}, 'x'), await failOnce('c', {}, 'x')]
    await using visited = await opened('#/jobs', allowed)
    const { page } = visited
    await page.getByLabel(`Select job ${ids[0]}`).check()
    await page.getByLabel(`Select job ${ids[2]}`).check()
    await page.getByText('2 jobs selected').waitFor()
    await page.getByRole('button', { name: 'Retry…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Type retry to confirm').fill('yes')
    await dialog.getByRole('button', { name: 'Retry' }).click()
    await dialog.getByText('Expected retry, got something else.').waitFor()
    await dialog.getByLabel('Type retry to confirm').fill('retry')
    await dialog.getByRole('button', { name: 'Retry' }).click()
    await page.getByText('Retried: 2 jobs.').waitFor()
    await page.getByText('Select jobs, or filter them').waitFor()
    const states = await Promise.all(ids.map(async (id) => (await jobs.find(id))?.state))
    expect(states).toEqual(['ready', 'dead', 'ready'])
  })

  test.each(['since=1h', 'since=1h&before=2999-01-01T00:00:00.000Z'])(
    'a job that comes after the question fits no filter, and a question says its times: %s',
    async (filter) => {
      const shown = String(await jobs.enqueue('mail'))
      await using visited = await opened(`#/jobs?${filter}`, allowed)
      const { page } = visited
      await until('it is shown', async () => (await names(page)).join() === 'mail')
      await page.getByRole('button', { name: 'Cancel…' }).click()
      const dialog = page.getByRole('dialog')
      const later = String(await jobs.enqueue('later'))
      const facts = await dialog.locator('dl').textContent()
      expect(facts).toMatch(/Enqueued since.*\d:\d\d:\d\d.*Enqueued before.*\d:\d\d:\d\d/)
      await dialog.getByLabel('Reason').fill('wrong letter')
      await dialog.getByLabel('Type cancel to confirm').fill('cancel')
      await dialog.getByRole('button', { name: 'Cancel' }).last().click()
      await page.getByText('Cancelled: 1 job.').waitFor()
      const states = await Promise.all([shown, later].map(async (id) => (await jobs.find(id))?.state))
      expect(states).toEqual(['cancelled', 'ready'])
    },
  )

  test('a filter counts from now also while the lock store is away', async () => {
    const store = memoryStore()
    store.inspect = () => {
      throw new Error('connect ECONNREFUSED')
    }
    const old = String(await jobs.enqueue('old'))
    await pool.query("update holdfast.jobs set enqueued_at = enqueued_at - interval '2 hours'")
    const shown = String(await jobs.enqueue('mail'))
    await using visited = await opened('#/jobs?since=1h', allowed, { store })
    const { page } = visited
    await page.getByText('The store is away').waitFor()
    await until('it is shown', async () => (await names(page)).join() === 'mail')
    await page.getByRole('button', { name: 'Cancel…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Reason').fill('wrong letter')
    await dialog.getByLabel('Type cancel to confirm').fill('cancel')
    await dialog.getByRole('button', { name: 'Cancel' }).last().click()
    await page.getByText('Cancelled: 1 job.').waitFor()
    const states = await Promise.all([old, shown].map(async (id) => (await jobs.find(id))?.state))
    expect(states).toEqual(['ready', 'cancelled'])
  })

  test('another filter unticks what was ticked', async () => {
    const id = await failOnce('mail', {}, 'x')
    await failOnce('bill', {}, 'x')
    await using visited = await opened('#/jobs', allowed)
    const { page } = visited
    await page.getByLabel(`Select job ${id}`).check()
    await page.getByText('1 job selected').waitFor()
    await page.getByLabel('Name').fill('bill')
    await page.getByText('All that fit the filter').waitFor()
    await page.getByLabel('Name').fill('')
    await page.getByText('Select jobs, or filter them').waitFor()
    await until('both are shown', async () => (await names(page)).length === 2)
    expect(await page.getByLabel(`Select job ${id}`).isChecked()).toBe(false)
  })

  test('all that fit a filter are changed, and no other', async () => {
    await jobs.enqueueAll(Array.from({ length: 70 }, () => ({ name: 'mail' })))
    const other = String(await jobs.enqueue('bill'))
    await using visited = await opened('#/jobs?name=mail', allowed)
    const { page } = visited
    await page.getByText('All that fit the filter').waitFor()
    await page.getByRole('link', { name: '71 ready' }).waitFor()
    await page.getByRole('button', { name: 'Cancel…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('70 at this moment').waitFor()
    await dialog.getByLabel('Reason').fill('wrong letter')
    await dialog.getByLabel('Type cancel to confirm').fill('cancel')
    await dialog.getByRole('button', { name: 'Cancel' }).last().click()
    await page.getByText('Cancelled: 70 jobs.').waitFor()
    expect((await jobs.find(other))?.state).toBe('ready')
    await until(
      'the page shows it',
      async () => (await page.locator('.jobs td.mode').first().textContent()) === 'cancelled',
    )
  })
})

describe('the requests', () => {
  const json = { 'Content-Type': 'application/json' }
  const change = (server: TestServer, body: object, headers = {}) =>
    ask(server, {
      path: '/api/jobs',
      method: 'POST',
      headers: { ...json, ...headers },
      body: JSON.stringify(body),
    })

  test('change nothing without the right, or from another site, or without the token', async () => {
    const id = await failOnce('mail', {}, 'x')
    const body = { action: 'retry', ids: [id] }
    await using looking = await served({ allowEvict: true })
    expect((await change(looking, body)).status).toBe(403)
    await using open = await served({ allowJobChanges: true })
    expect((await change(open, body, { Origin: 'https://evil.example' })).status).toBe(403)
    expect((await change(open, body, { 'Content-Type': 'text/plain' })).status).toBe(400)
    await using secret = await served({ allowJobChanges: true, token: 'correct-horse-battery' })
    expect((await change(secret, body)).status).toBe(401)
    expect((await jobs.find(id))?.state).toBe('dead')
    const bearer = { Authorization: 'Bearer correct-horse-battery' }
    expect(await change(secret, body, bearer)).toMatchObject({ status: 200, text: '{"changed":1}' })
  })

  test('say in one sentence what they expect', async () => {
    await using server = await served({ allowJobChanges: true })
    const wrong: [object, RegExp][] = [
      [{ action: 'drop', ids: ['1'] }, /Expected `action` to be retry, cancel or remove, got "drop"/],
      [{ action: 'retry' }, /Expected `ids` to be an array, or `filter` an object/],
      [{ action: 'retry', ids: [1] }, /Expected `ids` to be the id of a job, got 1/],
      [{ action: 'retry', filter: {} }, /Expected `selection` to be ids, or a filter with at least one/],
      [{ action: 'retry', filter: { state: 'old' } }, /Expected `state` to be one of pending, ready/],
      [{ action: 'retry', filter: { since: 'monday' } }, /Expected `since` to be /],
      [{ action: 'cancel', ids: ['1'] }, /Expected `reason`/],
    ]
    for (const [body, message] of wrong) {
      const { status, text } = await change(server, body)
      expect([status, JSON.parse(text).message]).toEqual([400, expect.stringMatching(message)])
    }
  })

  test('show a list and a job to programs', async () => {
    const id = await failOnce('mail', { to: 'me' }, 'x')
    await using server = await served()
    const list = JSON.parse((await ask(server, { path: '/api/view?view=jobs&state=dead' })).text)
    expect(list.jobs).toMatchObject([{ id, name: 'mail', state: 'dead', error: 'x' }])
    const one = JSON.parse((await ask(server, { path: `/api/view?view=job&id=${id}` })).text)
    expect(JSON.parse(one.job.payload)).toEqual({ to: 'me' })
    expect(one.job.failedAttempts).toMatchObject([{ attempt: 1, worker: 'worker-7', error: 'x' }])
  })
})
