import type { Browser } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createDashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { connect, createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { shortestMs } from '../base/measured.ts'
import { openSqlite, type TestStore } from '../cli/stores.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { accessibilityFaults, isTooWide, startBrowser, type Visit, visit } from './browser.ts'
import { serve, type TestServer } from './dashboard-server.ts'
import { SharedOut } from './shared-out.ts'

let browser: Browser
beforeAll(async () => {
  browser = await startBrowser()
})
afterAll(() => browser.close())

const stores: { name: string; open: () => Promise<TestStore> }[] = [
  { name: 'memory', open: async () => ({ url: 'memory:', [Symbol.asyncDispose]: async () => {} }) },
  { name: 'sqlite', open: openSqlite },
  { name: 'redis', open: startRedis },
]

/** A dashboard of its own, opened in the browser. When it is disposed of, it reports the page's errors. */
async function open(
  locks: Locks,
  { options, ...context }: OpenOptions = {},
): Promise<Visit & { url: string; server: TestServer }> {
  const dashboard = createDashboard(locks, options)
  const server = await serve(dashboard)
  const visited = await visit(browser, server.url, context)
  return {
    ...visited,
    url: server.url,
    server,
    async [Symbol.asyncDispose]() {
      await visited[Symbol.asyncDispose]()
      await dashboard.close()
      await server[Symbol.asyncDispose]()
      expect(visited.wrongs).toEqual([])
    },
  }
}

interface OpenOptions {
  readonly options?: DashboardOptions
  readonly colorScheme?: 'light' | 'dark'
  readonly viewport?: { readonly width: number; readonly height: number }
}

describe.each(stores)('on $name', ({ open: openStore }) => {
  let store: TestStore
  let locks: Locks
  beforeAll(async () => {
    store = await openStore()
  })
  afterAll(() => store[Symbol.asyncDispose]())
  beforeEach(async () => {
    locks = await connect(store.url, { label: 'web-1' })
  })
  afterEach(() => locks.close())

  test('a key comes, is waited for, handed over, evicted and goes, while somebody looks', async () => {
    await using opened = await open(locks, { options: { allowEvict: true } })
    const { page } = opened
    await page.getByText('No key is held.').waitFor()
    const first = await locks.acquire('invoice:42')
    const row = page.getByRole('row', { name: 'invoice:42' })
    await row.waitFor()
    expect(await row.textContent()).toContain('web-1')
    expect(await row.locator('.fence').textContent()).toBe(String(first.fence))
    const waiting = locks.acquire('invoice:42', { ttl: '10s' })
    await row.locator('.waiting', { hasText: /^1$/ }).waitFor()

    await page.getByRole('link', { name: 'invoice:42' }).click()
    await page.getByRole('heading', { name: 'invoice:42' }).waitFor()
    await page.getByText('1 holding, 1 waiting').waitFor()
    await first.release()
    const second = await waiting
    await page.getByRole('table', { name: 'Timeline' }).getByText(String(second.fence)).waitFor()
    await page.getByText('released', { exact: true }).waitFor()
    await until('each hold has its bar', async () => (await page.locator('.picture .bar').count()) === 2)

    await page.getByRole('button', { name: /^Evict web-1/ }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'Evict' }).click()
    expect(second.state).toBe('held')
    await dialog.getByLabel('Reason').fill('stuck <b>since</b> monday')
    await dialog.getByRole('button', { name: 'Evict' }).click()
    await page.getByText('evicted: stuck <b>since</b> monday').waitFor()
    await until('its holder knows', () => second.state === 'lost')
    expect(() => second.assertHeld()).toThrow('stuck <b>since</b> monday')
    expect(await page.locator('#said').textContent()).toBe('Evicted: 1 ticket.')
    await page.getByText('free', { exact: true }).waitFor()
    await page.getByRole('link', { name: 'All keys' }).click()
    await page.getByText('No key is held.').waitFor()
  })
})

describe('the page', () => {
  let locks: Locks
  beforeEach(() => {
    locks = createLocks(memoryStore(), { label: 'web-1' })
  })
  afterEach(() => locks.close())

  test('has no way to evict if that is not switched on', async () => {
    await locks.acquire('k')
    await using opened = await open(locks)
    await opened.page.getByRole('link', { name: 'k', exact: true }).click()
    await opened.page.getByText('1 holding').waitFor()
    expect(await opened.page.getByRole('button', { name: /evict/i }).count()).toBe(0)
  })

  test('is used by keyboard alone', async () => {
    for (const key of ['apple', 'pear', 'plum']) await locks.acquire(key)
    await using opened = await open(locks, { options: { allowEvict: true } })
    const { page } = opened
    const focused = () => page.evaluate('document.activeElement.textContent || document.activeElement.id')
    await page.getByRole('row', { name: 'apple' }).waitFor()
    await page.keyboard.press('Tab')
    expect(await focused()).toBe('Skip to content')
    await page.keyboard.press('/')
    await page.keyboard.type('p')
    await page.keyboard.type('lum')
    await page.getByText('1 key', { exact: true }).waitFor()
    expect([await focused(), await page.locator('#search').inputValue()]).toEqual(['search', 'plum'])
    await page.keyboard.press('Escape')
    expect(await focused()).toBe('plum')
    expect(await page.locator('#search').inputValue()).toBe('plum')
    const outline = 'getComputedStyle(document.activeElement).outlineStyle'
    expect(await page.evaluate(outline)).toBe('solid')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'plum' }).waitFor()
    expect(await page.evaluate('document.activeElement.id')).toBe('main')
    await page.getByRole('button', { name: 'Evict everybody…' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    expect(await focused()).toBe('reason')
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await focused()).toBe('Evict everybody…')
    expect(await page.getByRole('heading', { name: 'plum' }).count()).toBe(1)
    // The list has its filter still.
    await page.keyboard.press('Escape')
    await page.getByText('1 key', { exact: true }).waitFor()
    expect(await page.locator('#search').inputValue()).toBe('plum')
  })

  test('asks no more about evicting from a key once another page is shown', async () => {
    const leases = await Promise.all(['one', 'other'].map((key) => locks.acquire(key)))
    await using opened = await open(locks, { options: { allowEvict: true } })
    const { page, url } = opened
    for (const key of ['one', 'other']) {
      await page.goto(`${url}#/key?key=${key}`)
      await page.getByRole('heading', { name: key, exact: true }).waitFor()
    }
    await page.getByRole('button', { name: 'Evict everybody…' }).click()
    await page.getByRole('dialog').waitFor()
    await page.goBack()
    await page.getByRole('heading', { name: 'one', exact: true }).waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(leases.map(({ state }) => state)).toEqual(['held', 'held'])
  })

  test('keeps the focus where it is when the page changes', async () => {
    await locks.acquire('b')
    await using opened = await open(locks)
    const { page } = opened
    await page.getByRole('link', { name: 'b', exact: true }).focus()
    await locks.acquire('a')
    await locks.acquire('c')
    await page.getByRole('row', { name: 'web-1' }).nth(2).waitFor()
    expect(await page.evaluate('document.activeElement.textContent')).toBe('b')
    expect(await page.locator('td.key').allTextContents()).toEqual(['a', 'b', 'c'])
  })

  test('keeps the focus also where what stands above it goes away, or it has to move itself', async () => {
    const leases = await Promise.all(['a', 'b', 'c', 'd'].map((key) => locks.acquire(key)))
    await using opened = await open(locks)
    const { page } = opened
    const focused = () => page.evaluate('document.activeElement.textContent')
    await page.getByRole('link', { name: 'c', exact: true }).focus()
    await leases[0]?.release()
    await page.getByRole('link', { name: 'a', exact: true }).waitFor({ state: 'detached' })
    expect(await focused()).toBe('c')
    await page.getByRole('button', { name: 'Waiting', exact: true }).click()
    await page.getByRole('link', { name: 'd', exact: true }).focus()
    const giveUp = new AbortController()
    const waiting = ['c', 'd', 'd'].map((key) => locks.acquire(key, { signal: giveUp.signal }))
    const order = async () => (await page.locator('td.key').allTextContents()).join(' ')
    await until('the order is another one', async () => (await order()) === 'd c b')
    expect(await focused()).toBe('d')
    giveUp.abort()
    await Promise.allSettled(waiting)
  })

  test('shows in the picture of hand-overs, too, what cannot be seen in a name', async () => {
    const strangers = createLocks(memoryStore(), { label: 'web\u202e1\u0007' })
    await strangers.acquire('k')
    await using opened = await open(strangers, { options: { allowEvict: true } })
    const { page } = opened
    await page.getByRole('link', { name: 'k', exact: true }).click()
    const owner = page.locator('.picture .owner').first()
    await owner.waitFor()
    expect(await owner.textContent()).toContain('web\\u{202e}1\\x07')
    const evict = page.getByRole('button', { name: /^Evict web/ })
    expect(await evict.getAttribute('aria-label')).toContain('web\\u{202e}1\\x07')
    await strangers.close()
  })

  test('keeps a half-typed token when the user looks elsewhere for the rest', async () => {
    await using opened = await open(locks, { options: { token: 'correct-horse-battery' } })
    const { page } = opened
    await page.getByLabel('Token').fill('correct-')
    let asked = 0
    page.on('request', () => {
      asked += 1
    })
    await page.evaluate(`document.dispatchEvent(new Event('visibilitychange'))`)
    await page.evaluate('new Promise((resolve) => setTimeout(resolve, 500))')
    expect([asked, await page.getByLabel('Token').inputValue()]).toEqual([0, 'correct-'])
  })

  test('is there also without a stream: where there are too many, or something lets none through', async () => {
    await locks.acquire('k')
    const dashboard = createDashboard(locks)
    let live: 'full' | 'silent' = 'full'
    const server = await serve((request, response) => {
      if (!request.url?.startsWith('/api/live')) dashboard(request, response)
      else if (live === 'full') response.writeHead(503).end()
      else response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('\n')
    })
    await using visited = await visit(browser, server.url)
    const { page } = visited
    await page.getByRole('link', { name: 'k', exact: true }).waitFor()
    const lease = await locks.acquire('k2')
    await page.getByRole('link', { name: 'k2', exact: true }).waitFor()
    live = 'silent'
    await page.clock.install()
    await page.reload()
    await lease.release()
    await until('it waits for a message', async () => server.inFlight() === 1)
    await page.clock.fastForward(25_000)
    await page.getByRole('link', { name: 'k', exact: true }).waitFor()
    expect(await page.locator('#pill').textContent()).toBe('live')
    await page.getByRole('link', { name: 'k2', exact: true }).waitFor({ state: 'detached' })
    await dashboard.close()
    await visited[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test('polls once at a time, however often the user leaves and comes back', async () => {
    const dashboard = createDashboard(locks)
    let open: (() => void) | undefined
    let opened = Promise.resolve()
    const server = await serve((request, response) => {
      if (request.url?.startsWith('/api/live'))
        response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('\n')
      else void opened.then(() => dashboard(request, response))
    })
    await using visited = await visit(browser, server.url)
    const { page } = visited
    let [asked, answered] = [0, 0]
    const isPoll = (request: { url(): string }) => request.url().includes('/api/view')
    page.on('request', (request) => (asked += Number(isPoll(request))))
    for (const end of ['requestfinished', 'requestfailed'] as const)
      page.on(end as 'requestfinished', (request) => (answered += Number(isPoll(request))))
    await page.clock.install()
    await page.reload()
    await until('it waits for a message', async () => server.inFlight() === 1)
    await page.clock.fastForward(25_000)
    await page.getByText('No key is held.').waitFor()
    opened = new Promise((resolve) => (open = resolve))
    const before = asked
    for (let n = 0; n < 8; n += 1)
      for (const isHidden of [true, false])
        await page.evaluate(`Object.defineProperty(document, 'hidden', { value: ${isHidden}, configurable: true })
          document.dispatchEvent(new Event('visibilitychange'))`)
    await until('it asks', () => asked >= before + 8)
    open?.()
    await until('all are answered', () => answered === asked)
    const settled = asked
    await page.clock.fastForward(2100)
    await until('it polls', () => asked > settled)
    await until('the polls are answered', () => answered === asked)
    // The clock of the page goes on by itself, so there may be another one.
    expect(asked - settled).toBeLessThan(4)
    await dashboard.close()
    await visited[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test('asks again also after an answer that it cannot show', async () => {
    const dashboard = createDashboard(locks)
    let polls = 0
    await using server = await serve((request, response) => {
      if (request.url?.startsWith('/api/live')) return response.writeHead(503).end()
      if (request.url?.startsWith('/api/view')) polls += 1
      if (request.url?.startsWith('/api/view') && polls === 1) return response.end('{"store":{}}')
      return dashboard(request, response)
    })
    await using visited = await visit(browser, server.url)
    await visited.page.getByText('No key is held.').waitFor()
    expect(polls).toBeGreaterThan(1)
    await dashboard.close()
  })

  test('stops the time when it is refused, and while it waits for the first answer after it was hidden', async () => {
    await locks.acquire('k')
    let isAllowed = true
    const dashboard = createDashboard(locks, { authorize: () => isAllowed })
    let isSilent = false
    let streams = 0
    await using server = await serve((request, response) => {
      streams += Number(request.url?.startsWith('/api/live'))
      if (!isSilent || !request.url?.startsWith('/api/live')) return dashboard(request, response)
      return response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('\n')
    })
    await using visited = await visit(browser, server.url)
    const { page } = visited
    const turn = (hidden: boolean) =>
      page.evaluate(`Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))`)
    const held = () => page.locator('td.held').textContent()
    const pill = (text: string) => page.locator('#pill', { hasText: text }).waitFor()
    const standsStill = async () => {
      const shown = await held()
      await page.clock.runFor(3000)
      expect(await held()).toBe(shown)
    }
    await page.clock.install()
    await page.reload()
    await pill('live')
    await turn(true)
    await pill('connecting')
    isSilent = true
    await turn(false)
    await until('it listens', () => streams > 1)
    await pill('connecting')
    await page.getByText(/^The page shows the state of [\d:]+\.$/).waitFor()
    await standsStill()
    // It polls. A stream has come through before, so it listens again, too.
    isSilent = false
    const before = streams
    await page.clock.fastForward(25_000)
    await pill('live')
    await page.clock.fastForward(2100)
    await until('it listens', () => streams > before)

    isAllowed = false
    await turn(true)
    await turn(false)
    await page
      .getByText(/^Your session does not allow this, or has ended. The page shows the state of [\d:]+\.$/)
      .waitFor()
    await pill('refused')
    await standsStill()
    await dashboard.close()
  })

  test('says with which status it is refused, and asks again', async () => {
    const dashboard = createDashboard(locks)
    let isRefused = true
    await using server = await serve((request, response) => {
      if (isRefused && request.url?.startsWith('/api/')) response.writeHead(431).end()
      else dashboard(request, response)
    })
    await using visited = await visit(browser, server.url)
    await visited.page.getByText('The dashboard answered with the status 431.').waitFor()
    isRefused = false
    await visited.page.getByText('No key is held.').waitFor()
    await dashboard.close()
  })

  test('tells of an eviction that fails after its question was closed', async () => {
    await locks.acquire('k')
    const dashboard = createDashboard(locks, { allowEvict: true })
    let fail: (() => void) | undefined
    await using server = await serve((request, response) => {
      if (request.url !== '/api/evict') return dashboard(request, response)
      fail = () => {
        response
          .writeHead(503, { 'Content-Type': 'application/json' })
          .end('{"message":"The store is away."}')
      }
    })
    await using visited = await visit(browser, `${server.url}#/key?key=k`)
    const { page } = visited
    await page.getByRole('button', { name: 'Evict everybody…' }).click()
    await page.getByLabel('Reason').fill('hangs')
    await page.keyboard.press('Enter')
    await until('it is sent', () => fail !== undefined)
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    fail?.()
    await page.locator('#said', { hasText: 'Evict failed. The store is away.' }).waitFor()
    await dashboard.close()
  })

  test('shows names of strangers as text, whatever they are', async () => {
    const hostile = [
      '<img src=x onerror=alert(1)>',
      '"><script>alert(1)</script>',
      'two\nlines',
      '\u202eevil',
      'שלום',
      'x'.repeat(1000),
      '%00%2e%2e/&key=other#?',
      'a\u2800b\u3164c\u034fd\ufe0f',
      'a\u2003b\u3000c',
      'two  spaces',
      'emoji ❤\ufe0f 1\ufe0f\u20e3 葛\u{e0100}',
      '__proto__',
    ]
    const store = memoryStore()
    const strangers = createLocks(store, { label: `<img src=x onerror=alert(2)>${'y'.repeat(400)}` })
    for (const name of hostile) await strangers.acquire(name)
    for (const width of [1280, 320]) {
      await using opened = await open(strangers, {
        options: { title: '<b>Locks</b>' },
        viewport: { width, height: 800 },
      })
      const { page } = opened
      await page.getByRole('heading', { name: '<b>Locks</b>' }).waitFor()
      await until('all are shown', async () => (await page.locator('td.key').count()) === hostile.length)
      expect(await page.locator('main img, main script, main b').count()).toBe(0)
      expect(await page.locator('td.key').allTextContents()).toEqual(
        [...hostile]
          .sort()
          .map((name) =>
            name
              .replace('\n', '\\x0a')
              .replace(
                /\u202e|\u2003|\u3000|\u2800|\u3164|\u034f|(?<=d)\ufe0f/g,
                (each) => `\\u{${each.charCodeAt(0).toString(16)}}`,
              ),
          ),
      )
      const long = page.getByRole('link', { name: 'xxxx' })
      expect(await long.getAttribute('title')).toBe('x'.repeat(1000))
      expect(await long.evaluate('getComputedStyle(document.querySelector("td.key a")).whiteSpace')).toBe(
        'pre-wrap',
      )
      expect(await isTooWide(page)).toBe(false)
      for (const name of hostile) {
        await page.goto(`${opened.url}#/key?${new URLSearchParams({ key: name })}`)
        await until(
          'it is shown',
          async () => (await page.locator('h2').getAttribute('data-strange')) === name,
        )
        await page.getByText('1 holding').waitFor()
        expect(await isTooWide(page)).toBe(false)
      }
    }
    await strangers.close()
  })

  test('of 10,000 keys stays small, and finds one of them', async () => {
    await Promise.all(Array.from({ length: 10_000 }, (_, n) => locks.acquire(`session:${n}`)))
    await using opened = await open(locks)
    const { page } = opened
    await page.getByText('page 1 of 100', { exact: true }).waitFor()
    expect(await page.locator('tbody tr').count()).toBe(100)
    expect(await page.evaluate('document.querySelectorAll("*").length')).toBeLessThan(5000)
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText('page 2 of 100', { exact: true }).waitFor()
    await page.locator('#search').fill('session:7777')
    await page.getByText('1 key', { exact: true }).waitFor()
    expect(await page.locator('td.key').allTextContents()).toEqual(['session:7777'])
    // The page stays responsive while it gets changes.
    const longestFrame = () =>
      page.evaluate<number>(`new Promise((resolve) => {
      let last = performance.now(), longest = 0, frames = 0
      const step = () => {
        const now = performance.now()
        longest = Math.max(longest, now - last)
        last = now
        if (++frames === 60) resolve(longest)
        else requestAnimationFrame(step)
      }
      requestAnimationFrame(step)
    })`)
    expect(await shortestMs(1000, longestFrame)).toBeLessThan(1000)
  })

  test('is light or dark as the system is, with text that can be read', async () => {
    await locks.acquire('k')
    const backgrounds: unknown[] = []
    for (const colorScheme of ['light', 'dark'] as const) {
      await using opened = await open(locks, { colorScheme })
      const { page } = opened
      await page.getByRole('link', { name: 'k', exact: true }).waitFor()
      backgrounds.push(await page.evaluate('getComputedStyle(document.body).backgroundColor'))
      const contrasts = (await page.evaluate(CONTRASTS)) as { text: string; ratio: number }[]
      expect(contrasts.length).toBeGreaterThan(10)
      expect(contrasts.filter(({ ratio }) => ratio < 4.5)).toEqual([])
    }
    expect(new Set(backgrounds).size).toBe(2)
  })

  test('fits a phone in all of its views', async () => {
    const giveUp = new AbortController()
    let leave = () => {}
    const leading = locks.election('mailer').campaign(
      () =>
        new Promise<void>((resolve) => {
          leave = resolve
        }),
    )
    await locks.acquire('stock:warehouse-of-the-north:item-000000000000042')
    const waiting = locks.acquire('stock:warehouse-of-the-north:item-000000000000042', {
      signal: giveUp.signal,
    })
    await using opened = await open(locks, {
      options: { allowEvict: true },
      viewport: { width: 320, height: 640 },
    })
    const { page } = opened
    await page.getByRole('link', { name: /^stock/ }).click()
    await page.locator('.picture svg').waitFor()
    expect(await isTooWide(page)).toBe(false)
    await page.getByRole('button', { name: 'Evict everybody…' }).click()
    expect(await isTooWide(page)).toBe(false)
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('link', { name: 'Leaders' }).click()
    await page.getByRole('row', { name: 'mailer' }).waitFor()
    expect(await isTooWide(page)).toBe(false)
    await page.getByRole('link', { name: 'Keys', exact: true }).click()
    await page.getByRole('row', { name: 'mailer' }).waitFor()
    expect(await isTooWide(page)).toBe(false)
    // The rows look like cards, but a screen reader still hears a table.
    expect(await page.getByRole('columnheader').count()).toBe(10)
    leave()
    giveUp.abort()
    await Promise.allSettled([leading, waiting])
  })

  test('shows each partition as a picture: rows of processes, squares of keys, and those that move', async () => {
    await using shared = new SharedOut(memoryStore())
    const first = shared.join('web-1', { partitions: 64 })
    await until('it holds all keys', () => first.partition.held.size === 64)
    first.hang()
    shared.join('web-2', { partitions: 64 })
    for (const viewport of [
      { width: 1280, height: 800 },
      { width: 320, height: 640 },
    ]) {
      await using opened = await open(shared.locks, { viewport })
      const { page } = opened
      await page.getByRole('link', { name: 'Partitions' }).click()
      await page.getByText(/^64 keys over 2 processes: 64 \/ 0; 0 held by nobody, 32 moving$/).waitFor()
      const table = page.getByRole('table', { name: 'Processes and keys of customers' })
      const row = table.getByRole('row', { name: /web-1/ })
      expect(await row.getByRole('link').count()).toBe(64)
      expect(await row.getByRole('link', { name: /moves to web-2/ }).count()).toBe(32)
      expect(await isTooWide(page)).toBe(false)
      expect(await accessibilityFaults(page)).toEqual([])
      // One stop for Tab, then the arrow keys.
      expect(await row.locator('a[tabindex="0"]').count()).toBe(1)
      await page.keyboard.press('j')
      await page.keyboard.press('ArrowRight')
      const focused = await page.evaluate('document.activeElement.title')
      expect(focused).toMatch(/^1: web-1 .*, fence \d+, since /)
      await page.keyboard.press('Enter')
      await page.getByRole('heading', { name: 'customers:1', exact: true }).waitFor()
    }
  })

  test('asks for the token, and does not keep it in the address', async () => {
    const token = 'correct-horse-battery'
    await locks.acquire('k')
    await using opened = await open(locks, { options: { token } })
    const { page, url } = opened
    await page.getByLabel('Token').fill('wrong')
    await page.keyboard.press('Enter')
    await page.getByText('This is not the token.').waitFor()
    expect(await page.getByText('web-1').count()).toBe(0)
    await page.getByLabel('Token').fill(token)
    await page.keyboard.press('Enter')
    await page.getByRole('link', { name: 'k', exact: true }).waitFor()
    await using other = await visit(browser, `${url}?token=${token}`)
    await other.page.getByRole('link', { name: 'k', exact: true }).waitFor()
    expect(other.page.url()).toBe(url)
    expect(await other.page.evaluate('document.cookie')).toBe('')
    expect(other.wrongs).toEqual([])
  })

  test('asks nobody for a token whom the application refuses, and asks the application again', async () => {
    let isAllowed = true
    await locks.acquire('k')
    await using opened = await open(locks, { options: { authorize: () => isAllowed, allowEvict: true } })
    const { page, url } = opened
    await page.goto(`${url}#/key?key=k`)
    await page.getByRole('button', { name: 'Evict everybody…' }).click()
    isAllowed = false
    await page.getByLabel('Reason').fill('hangs')
    await page.keyboard.press('Enter')
    const refusal = 'Your session does not allow this, or has ended.'
    await page.getByRole('dialog').getByText(refusal).waitFor()
    await page.clock.install()
    await page.reload()
    await page.locator('#banner', { hasText: refusal }).waitFor()
    expect(await page.getByLabel('Token').count()).toBe(0)
    isAllowed = true
    await page.clock.fastForward(30_000)
    await page.getByRole('button', { name: 'Evict everybody…' }).waitFor()
  })

  test('shows the keys with the most waiters, and their history', async () => {
    const giveUp = new AbortController()
    const hold = async (key: string, waiters: number) => {
      await locks.acquire(key)
      return Array.from({ length: waiters }, () => locks.acquire(key, { signal: giveUp.signal }))
    }
    const waiting = [...(await hold('often', 4)), ...(await hold('seldom', 1)), ...(await hold('never', 0))]
    for (const width of [1280, 1120, 760, 320]) {
      await using opened = await open(locks, { viewport: { width, height: 800 } })
      const { page } = opened
      await page.getByRole('link', { name: 'Contention' }).click()
      const often = page.getByRole('row', { name: 'often' })
      await often.waitFor()
      expect(await page.locator('td.key').allTextContents()).toEqual(['often', 'seldom'])
      expect(await often.locator('.average').textContent()).toBe('4.0')
      const bars = await page
        .locator('meter')
        .evaluateAll((meters) =>
          meters.map((meter) => [meter.getAttribute('value'), meter.getAttribute('max')]),
        )
      expect(bars).toEqual([
        ['4', '4'],
        ['1', '4'],
      ])
      const line = often.locator('.sparkline .line')
      await until('its queue is drawn', async () => (await line.getAttribute('d'))?.startsWith('M') === true)
      expect(await isTooWide(page)).toBe(false)
      const widthOf = async (part: string) => (await page.locator(part).boundingBox())?.width ?? Number.NaN
      // The page may draw the row anew in this very moment. Then the row has no width.
      await until(
        'it is as wide as the totals at most',
        async () => (await widthOf('.contention')) <= (await widthOf('.totals')),
      )
      await often.getByRole('link').click()
      await page.getByText('1 holding, 4 waiting').waitFor()
    }
    giveUp.abort()
    await Promise.allSettled(waiting)
  })

  test('says that it shows no jobs if an old link leads to them', async () => {
    await using opened = await open(locks)
    await opened.page.goto(`${opened.url}#/jobs`)
    await opened.page.getByText('This dashboard shows no jobs.').waitFor()
    expect(await opened.page.getByRole('link', { name: 'Jobs' }).count()).toBe(0)
  })

  test('does not ask while no person sees it, and goes on when one does', async () => {
    await using opened = await open(locks)
    const { page, server } = opened
    await page.getByText('No key is held.').waitFor()
    const turn = (hidden: boolean) =>
      page.evaluate(`Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))`)
    await turn(true)
    await until('it has hung up', async () => server.inFlight() === 0)
    await locks.acquire('k')
    await turn(false)
    await page.getByRole('link', { name: 'k', exact: true }).waitFor()
  })
})

test('a store that goes away and comes back is told at the top, and the page goes on by itself', async () => {
  await using redis = await startRedis()
  const locks = await connect(redis.url, { label: 'web-1' })
  await locks.acquire('before', { ttl: '1h' })
  await using opened = await open(locks)
  const { page } = opened
  await page.getByRole('row', { name: 'before' }).waitFor()
  await redis.kill()
  await page.getByText(/^The store is away since [\d:]+\. The page shows the state of [\d:]+\. /).waitFor()
  expect(await page.locator('#banner').textContent()).not.toMatch(/since.*since/)
  // Nobody knows what has happened meanwhile, so ages and times left stand still.
  const left = () => page.getByRole('row', { name: 'before' }).locator('.left, .held').allTextContents()
  const shown = await left()
  await page.waitForTimeout(2500)
  expect(await left()).toEqual(shown)
  await redis.restart()
  await until('the banner is gone', async () => (await page.locator('#banner').textContent()) === '')
  const lease = await locks.acquire('after')
  await page.getByRole('row', { name: 'after' }).waitFor()
  await lease.release()
  await locks.close()
})

test('a dashboard that goes away and comes back is told, too', async () => {
  const locks = createLocks(memoryStore())
  await locks.acquire('k')
  let dashboard = createDashboard(locks)
  let isAway = false
  const server = await serve((request, response) => {
    if (isAway) response.writeHead(502).end()
    else dashboard(request, response)
  })
  await using visited = await visit(browser, server.url)
  const { page } = visited
  await page.getByRole('link', { name: 'k', exact: true }).waitFor()
  isAway = true
  await dashboard.close()
  await page.getByText(/^The dashboard does not answer/).waitFor()
  dashboard = createDashboard(locks)
  isAway = false
  await until('the banner is gone', async () => (await page.locator('#banner').textContent()) === '')
  await server[Symbol.asyncDispose]()
  await dashboard.close()
  await locks.close()
})

/** The contrast (WCAG 2.2, 1.4.3) of every text against what is behind it. */
const CONTRASTS = `(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true })
  const over = (...colours) => {
    canvas.clearRect(0, 0, 1, 1)
    for (const colour of colours) {
      canvas.fillStyle = colour
      canvas.fillRect(0, 0, 1, 1)
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
  }
  const luminance = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const found = []
  for (const node of document.querySelectorAll('body *')) {
    const text = [...node.childNodes].filter(({ nodeType }) => nodeType === 3).map(({ data }) => data).join('').trim()
    if (text === '' || node.closest('noscript, .aside, option, :disabled') || node.getClientRects().length === 0) continue
    const behind = []
    for (let each = node; each !== null; each = each.parentElement) behind.unshift(getComputedStyle(each).backgroundColor)
    const back = over(...behind)
    const front = over(...behind, getComputedStyle(node).color)
    const [light, dark] = [luminance(front), luminance(back)].sort((a, b) => b - a)
    found.push({ text, ratio: (light + 0.05) / (dark + 0.05) })
  }
  return found
})()`
