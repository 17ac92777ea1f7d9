import { readFileSync } from 'node:fs'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createDashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { createLocks, type Lease, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { accessibilityFaults, isTooWide, startBrowser, type Visit, visit } from './browser.ts'
import { ask, serve, type TestServer } from './dashboard-server.ts'

let browser: Browser
beforeAll(async () => {
  browser = await startBrowser()
})
afterAll(() => browser.close())

let locks: Locks
let giveUp: AbortController
beforeEach(() => {
  locks = createLocks(memoryStore(), { label: 'web-1' })
  giveUp = new AbortController()
})
afterEach(async () => {
  giveUp.abort()
  await locks.close()
})

async function open(
  options: DashboardOptions = {},
  context: Parameters<typeof visit>[2] = {},
): Promise<Visit & { readonly server: TestServer; readonly url: string }> {
  const dashboard = createDashboard(locks, options)
  const server = await serve(dashboard)
  const visited = await visit(browser, server.url, context)
  return {
    ...visited,
    server,
    url: server.url,
    async [Symbol.asyncDispose]() {
      await visited[Symbol.asyncDispose]()
      await dashboard.close()
      await server[Symbol.asyncDispose]()
      expect(visited.wrongs).toEqual([])
    },
  }
}

/** Waits in vain, so that it waits for as long as the test runs. */
async function waitFor(key: string, waiters: number): Promise<void> {
  for (let n = 0; n < waiters; n += 1) locks.acquire(key, { signal: giveUp.signal }).catch(() => {})
  await until(`${waiters} wait for ${key}`, async () => (await locks.peek(key))?.queue.length === waiters)
}

const keysOf = (page: Page): Promise<string[]> => page.locator('tbody td.key').allTextContents()

async function shows(page: Page, keys: readonly string[]): Promise<void> {
  await until(`it shows ${keys.join(' ')}`, async () => (await keysOf(page)).join(' ') === keys.join(' '))
}

describe('a list', () => {
  test.each([1280, 900, 390])(
    'keeps its pages on a screen of %i pixels while it is scrolled',
    async (width) => {
      for (let n = 0; n < 40; n += 1) await locks.acquire(`key:${n}`)
      await using opened = await open({}, { viewport: { width, height: 600 } })
      const { page } = opened
      await page.getByText('40 keys').waitFor()
      await page.mouse.wheel(0, 1200)
      await until('it is scrolled', () => page.evaluate('scrollY > 600'))
      const next = await page.getByRole('button', { name: 'Next' }).boundingBox()
      expect(next?.y).toBeGreaterThanOrEqual(0)
      expect(next?.y).toBeLessThan(60)
      expect(await isTooWide(page)).toBe(false)
      // The head of the table stands below the pages. On a phone there is none.
      const head = await page.locator('thead th.key').boundingBox()
      if (width > 720) expect(head?.y).toBeGreaterThanOrEqual((next?.y ?? 0) + (next?.height ?? 0))
    },
  )

  test('has room for each of its columns on a screen of any width', async () => {
    for (const key of ['invoice:42', 'report:daily']) await locks.acquire(key)
    await waitFor('invoice:42', 3)
    let leave = () => {}
    const leading = locks.election('mailer').campaign(() => new Promise<void>((resolve) => (leave = resolve)))
    await using opened = await open({ allowEvict: true })
    const { page, url } = opened
    for (const view of ['keys', 'contention', 'leaders', 'processes']) {
      await page.goto(`${url}#/${view}`)
      await page.locator(`table.${view} tbody tr`).first().waitFor()
      for (let width = 1400; width > 720; width -= 40) {
        await page.setViewportSize({ width, height: 800 })
        const crowded = await page.evaluate(`[...document.querySelectorAll('main table th, main table td')]
          .filter((cell) => cell.offsetParent !== null && (cell.scrollWidth > cell.clientWidth + 1 || (cell.matches('.holder') && cell.clientWidth < 90)))
          .map((cell) => cell.className + ' ' + cell.clientWidth + ' ' + cell.textContent)`)
        expect({ view, width, crowded }).toEqual({ view, width, crowded: [] })
      }
    }
    leave()
    await leading
  })

  test('is sorted by a click on a title, and the other way round by another one', async () => {
    for (const key of ['a', 'b', 'c']) await locks.acquire(key)
    await waitFor('b', 2)
    await waitFor('c', 1)
    await using opened = await open()
    const { page } = opened
    await shows(page, ['a', 'b', 'c'])
    const title = page.getByRole('button', { name: 'Waiting', exact: true })
    const order = () => page.getByRole('columnheader', { name: 'Waiting' }).getAttribute('aria-sort')
    await title.click()
    await shows(page, ['b', 'c', 'a'])
    expect(await order()).toBe('descending')
    await title.click()
    await shows(page, ['a', 'c', 'b'])
    expect(await order()).toBe('ascending')
    // The order is part of the address.
    await page.reload()
    await shows(page, ['a', 'c', 'b'])
    await page.keyboard.press('<')
    await page.keyboard.press('r')
    expect(await page.locator('th[aria-sort]').textContent()).toBe('Fence')
    await shows(page, ['a', 'b', 'c'])
  })

  test('keeps its head and its pages on the screen, and its widths and buttons where they are', async () => {
    for (let n = 0; n < 150; n += 1) await locks.acquire(`key:${String(n).padStart(3, '0')}`)
    await using opened = await open()
    const { page } = opened
    const boxOf = async (name: string) => {
      const box = await page.locator(name).first().boundingBox()
      return [box?.x, box?.y, box?.width].map((each) => Math.round(each ?? Number.NaN))
    }
    await page.getByText('page 1 of 2', { exact: true }).waitFor()
    const next = page.getByRole('button', { name: 'Next', exact: true })
    const before = [await boxOf('th.held'), await boxOf('.pager button:last-of-type')]
    await next.click()
    await page.getByText('page 2 of 2', { exact: true }).waitFor()
    expect([await boxOf('th.held'), await boxOf('.pager button:last-of-type')]).toEqual(before)
    await page.keyboard.press('[')
    await page.getByText('page 1 of 2', { exact: true }).waitFor()
    await page.mouse.wheel(0, 2000)
    await until('it is scrolled', () => page.evaluate('scrollY > 1000'))
    for (const part of ['thead', '.pager']) expect((await boxOf(part))[1], part).toBeLessThan(60)
  })

  test('shows keys as a tree by their parts', async () => {
    for (const key of ['order:1', 'order:2', 'tenant:a:item:1', 'tenant:a:item:2', 'tenant:b', 'single:one'])
      await locks.acquire(key)
    await waitFor('tenant:b', 2)
    await using opened = await open()
    const { page } = opened
    await page.getByLabel('As', { exact: true }).selectOption('tree')
    await shows(page, ['order:', 'single:one', 'tenant:'])
    const row = page.getByRole('row', { name: 'tenant:' }).first()
    expect(await row.textContent()).toContain('3 keys')
    expect(await row.locator('.waiting').textContent()).toBe('2')
    await page.getByRole('button', { name: 'tenant:', exact: true }).click()
    await shows(page, ['order:', 'single:one', 'tenant:', 'tenant:a:', 'tenant:b'])
    await page.getByRole('button', { name: 'tenant:a:', exact: true }).click()
    await page.getByRole('button', { name: 'tenant:a:item:', exact: true }).click()
    await page.getByRole('link', { name: 'tenant:a:item:2', exact: true }).waitFor()
    expect(await page.getByText('6 keys', { exact: true }).count()).toBe(1)
    await page.getByRole('button', { name: 'tenant:', exact: true }).click()
    await shows(page, ['order:', 'single:one', 'tenant:'])
  })

  test('with more open groups than an address may name closes those that were opened first', async () => {
    const groups = Array.from({ length: 45 }, (_, n) => `${String(n).padStart(2, '0')}${'g'.repeat(400)}:`)
    for (const group of groups) for (const part of ['a', 'b']) await locks.acquire(`${group}${part}`)
    await using opened = await open()
    const { page, url } = opened
    const query = new URLSearchParams({ as: 'tree', open: JSON.stringify(groups) })
    await page.goto(`${url}#/keys?${query}`)
    const isOpen = (at: number) => page.locator('button.group').nth(at).getAttribute('aria-expanded')
    await until('the last one is open', async () => (await isOpen(44)) === 'true')
    expect(await isOpen(0)).toBe('false')
    await page.locator('button.group').first().click()
    await until('the first one is open', async () => (await isOpen(0)) === 'true')
    expect([await isOpen(44), page.url().length < 9000]).toEqual(['true', true])
  })

  test('evicts the holders of the keys that were selected, after a typed word, and nobody who came later', async () => {
    const leases: Lease[] = []
    for (const key of ['a', 'b', 'c']) leases.push(await locks.acquire(key))
    const waiting = locks.acquire('a')
    await using opened = await open({ allowEvict: true })
    const { page } = opened
    const select = (key: string) => page.getByRole('checkbox', { name: `Select key ${key}` })
    for (const key of ['a', 'b']) await select(key).check()
    await page.getByText('2 keys selected').waitFor()
    // The key changes hands after it was selected.
    await leases[1]?.release()
    const later = await locks.acquire('b')
    await page.getByText(String(later.fence)).waitFor()
    await page.keyboard.press('x')
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Reason').fill('hangs')
    await dialog.getByLabel('to confirm').fill('evikt')
    await dialog.getByRole('button', { name: 'Evict' }).click()
    await dialog.getByText('Expected evict').waitFor()
    expect(leases[0]?.state).toBe('held')
    await dialog.getByLabel('to confirm').fill('evict')
    await dialog.getByRole('button', { name: 'Evict' }).click()
    await page.getByText('Evicted: 1 holder. 1 key had no such holder any more.').waitFor()
    // The waiter was not evicted: it gets the key.
    expect((await waiting).state).toBe('held')
    await until('its holder knows', () => leases[0]?.state === 'lost')
    expect([later.state, leases[2]?.state]).toEqual(['held', 'held'])
    expect(await page.getByRole('button', { name: 'Evict…', exact: true }).isDisabled()).toBe(true)
    await page.getByRole('link', { name: 'Losses' }).click()
    await page.getByText('evicted: hangs').waitFor()
  })

  test('unticks the keys that were ticked when the filter changes', async () => {
    for (const key of ['apple', 'pear']) await locks.acquire(key)
    await using opened = await open({ allowEvict: true })
    const { page } = opened
    const tick = () => page.getByRole('checkbox', { name: 'Select key apple' })
    await tick().check()
    await page.getByText('1 key selected').waitFor()
    await page.locator('#search').fill('p')
    await page.getByText('Select keys to evict their holders').waitFor()
    expect(await tick().isChecked()).toBe(false)
    await tick().check()
    await page.getByLabel('Show').selectOption('contended')
    await page.getByText('Select keys to evict their holders').waitFor()
    await page.getByLabel('Show').selectOption('all')
    await tick().check()
    await page.getByText('1 key selected').waitFor()
    await page.getByLabel('As', { exact: true }).selectOption('tree')
    await page.getByText('Select keys to evict their holders').waitFor()
  })

  test('evicts everybody who was shown with a key when it asked, and nobody who came later', async () => {
    const first = await locks.acquire('k')
    const second = locks.acquire('k')
    await until('it waits', async () => (await locks.peek('k'))?.queue.length === 1)
    await using opened = await open({ allowEvict: true })
    const { page, url } = opened
    await page.goto(`${url}#/key?key=k`)
    await page.getByText('1 holding, 1 waiting').waitFor()
    await page.keyboard.press('x')
    const dialog = page.getByRole('dialog', { name: 'Evict everybody?' })
    const third = locks.acquire('k')
    await first.release()
    await page.getByText('1 holding, 1 waiting').waitFor()
    await until('the page shows who came later', async () =>
      (await page.locator('tbody .fence').allTextContents()).includes(String((await second).fence)),
    )
    expect(await dialog.locator('dd').last().textContent()).toBe('2')
    await dialog.getByLabel('Reason').fill('hangs')
    await page.keyboard.press('Enter')
    await page.getByText('Evicted: 1 ticket.').waitFor()
    const later = await third
    await until('its holder knows', async () => (await second).state === 'lost')
    expect(later.state).toBe('held')
  })

  test('refuses to evict holders that are not named in full, or are not shown, or if only looking is allowed', async () => {
    await locks.acquire('mine:1')
    const post = async (port: number, body: object) =>
      ask({ port }, { path: '/api/evict', method: 'POST', headers: JSON_TYPE, body: JSON.stringify(body) })
    const dashboard = createDashboard(locks, { allowEvict: true, prefix: 'mine:' })
    await using server = await serve(dashboard)
    for (const holders of [[], 'all', [null], [{ key: 'mine:1' }], [{ key: 'other', fence: '1' }]]) {
      const { status, text } = await post(server.port, { holders, reason: 'hangs' })
      expect([status, text]).toEqual([400, expect.stringContaining('Expected `holders` to be ')])
    }
    const holders = [{ key: 'mine:1', fence: '999999999999999999' }]
    const { text } = await post(server.port, { holders, reason: '' })
    expect(JSON.parse(text)).toMatchObject({ evicted: 0, message: expect.stringContaining('`reason`') })
    await dashboard.close()
    const looking = createDashboard(locks)
    await using other = await serve(looking)
    expect((await post(other.port, { holders, reason: 'hangs' })).status).toBe(403)
    await looking.close()
  })

  test('does not call a key free, or unknown, that does not begin with the prefix', async () => {
    await locks.acquire('other:1')
    await locks.acquire('mine:1')
    await using opened = await open({ prefix: 'mine:' })
    const { page, url } = opened
    await shows(page, ['mine:1'])
    await page.locator('#search').fill('other')
    await page.getByText('No key of those that were read is like that.').waitFor()
    await page.goto(`${url}#/key?key=other:1`)
    await page.getByText('not among the keys that were read', { exact: true }).waitFor()
    await page.goto(`${url}#/key?key=mine:2`)
    await page.getByText('free', { exact: true }).waitFor()
  })

  test('is exported as a whole, in its order, with its filter', async () => {
    for (let n = 0; n < 120; n += 1) await locks.acquire(`key:${String(n).padStart(3, '0')}`)
    await locks.acquire('=cmd|"calc",1')
    await using opened = await open()
    const { page, server } = opened
    await page.locator('#search').fill('key:')
    await page.getByText('120 keys', { exact: true }).waitFor()
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Export all as CSV' }).click(),
    ])
    const [titles, first, ...rest] = readFileSync(await download.path(), 'utf8')
      .trimEnd()
      .split('\r\n')
    expect(download.suggestedFilename()).toMatch(/^keys-[\dT-]+\.csv$/)
    expect(titles).toMatch(/^key,holder,host,pid,mode,state,heldSince,heldMs,leftMs,/)
    expect(first).toMatch(/^key:000,web-1,/)
    expect(rest.length).toBe(119)
    const get = (query: string) => ask(server, { path: `/api/export?${query}` })
    // A spreadsheet takes it for a text.
    expect((await get('format=csv')).text).toContain(`\r\n"'=cmd|""calc"",1",web-1,`)
    const json = JSON.parse((await get('format=json&sort=key&reversed=true&search=key:')).text) as object[]
    expect(json[0]).toMatchObject({ key: 'key:119', holder: 'web-1', waiting: 0, isElection: false })
    // An empty list has its head. What separates cells anywhere, or begins like a formula anywhere, stays a text.
    expect((await get('view=losses&format=csv')).text).toMatch(/^lostAt,key,holder,.*\r\n$/)
    for (const key of ['a;=1+1', 'a\t=1', '\uff1d1+1']) await locks.acquire(key)
    const csv = await until('they are seen', async () => {
      const { text } = await get('format=csv')
      return text.includes('a;') && text
    })
    for (const cell of ['"a;=1+1"', '"a\t=1"', "'\uff1d1+1"]) expect(csv).toContain(`\r\n${cell},web-1,`)
    for (const view of ['losses', 'processes', 'contention'])
      expect((await get(`view=${view}&format=json`)).status, view).toBe(200)
    for (const query of [
      'format=xml',
      'view=jobs&format=csv',
      'view=key&key=k&format=csv',
      'view=nothing&format=csv',
    ])
      expect((await get(query)).status, query).toBe(400)
  })

  test('is used by keys alone, which ? lists', async () => {
    for (const key of ['apple', 'pear', 'plum']) await locks.acquire(key)
    await using opened = await open({ allowEvict: true })
    const { page } = opened
    await shows(page, ['apple', 'pear', 'plum'])
    const focused = () => page.evaluate('document.activeElement.textContent')
    for (const [key, wanted] of [
      ['j', 'apple'],
      ['j', 'pear'],
      ['G', 'plum'],
      ['ArrowUp', 'pear'],
    ] as const) {
      await page.keyboard.press(key)
      expect(await focused()).toBe(wanted)
    }
    // A button keeps its own Space.
    await page.getByRole('row', { name: 'pear' }).getByRole('button', { name: 'Copy key' }).press(' ')
    await page.getByText('Copied key.').waitFor()
    expect(await page.locator('.scope').textContent()).toBe('Select keys to evict their holders')
    await page.getByRole('link', { name: 'pear', exact: true }).press(' ')
    await page.getByText('1 key selected').waitFor()
    await page.keyboard.press('c')
    await page.getByText('Copied key.').waitFor()
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keys' }).getByText('sort by the column').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('link', { name: 'pear', exact: true }).press('Enter')
    await page.getByRole('button', { name: 'Evict everybody…' }).waitFor()
    await page.keyboard.press('x')
    await page.getByRole('dialog', { name: 'Evict everybody?' }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('Escape')
    await shows(page, ['apple', 'pear', 'plum'])
    await page.keyboard.press('6')
    await page.getByText('No loss was seen.').waitFor()
  })
})

test('the page of a key shows its timeline above its queue, and a long queue folded', async () => {
  const lease = await locks.acquire('k')
  await lease.release()
  for (let n = 0; n < 12; n += 1) await (await locks.acquire('k')).release()
  await locks.acquire('k')
  await waitFor('k', 12)
  await using opened = await open()
  const { page, url } = opened
  await page.goto(`${url}#/key?key=k`)
  await page.getByText('Queue: 12 waiters').waitFor()
  const tops = await Promise.all(
    ['Timeline', 'Queue: 12 waiters'].map(
      async (text) => (await page.getByText(text, { exact: true }).last().boundingBox())?.y,
    ),
  )
  expect(tops[0]).toBeLessThan(tops[1] ?? 0)
  expect(await page.getByRole('table', { name: 'Queue' }).isVisible()).toBe(false)
})

const JSON_TYPE = { 'Content-Type': 'application/json' }

const LOOKS = [
  { colorScheme: 'light', viewport: { width: 1280, height: 800 } },
  { colorScheme: 'dark', viewport: { width: 390, height: 844 } },
] as const

test.each(LOOKS)('axe-core finds no fault in any view: $colorScheme', async (look) => {
  let leave = () => {}
  const leading = locks.election('mailer').campaign(() => new Promise<void>((resolve) => (leave = resolve)))
  for (const key of ['order:1', 'order:2', 'single']) await locks.acquire(key)
  await waitFor('order:1', 2)
  await using opened = await open({ allowEvict: true }, look)
  const { page, url } = opened
  await page.getByRole('link', { name: 'mailer', exact: true }).waitFor()
  await locks.evictAll('single', { reason: 'for the list of losses' })
  const views = [
    ['keys', 'order:1'],
    ['keys?as=tree', 'order:'],
    ['contention', 'order:1'],
    ['leaders', 'mailer'],
    ['processes', 'web-1'],
    ['partitions', 'No process is a member of a partition.'],
    ['losses', 'No loss was seen.'],
    ['key?key=order:1', 'Queue: 2 waiters'],
  ] as const
  for (const [place, text] of views) {
    await page.goto(`${url}#/${place}`)
    await page.locator('main').getByText(text, { exact: true }).first().waitFor()
    expect(await accessibilityFaults(page), place).toEqual([])
    expect(await isTooWide(page), place).toBe(false)
  }
  await page.getByRole('button', { name: 'Evict everybody…' }).click()
  expect(await accessibilityFaults(page), 'the question').toEqual([])
  await page.keyboard.press('Escape')
  await page.getByRole('button', { name: 'Keys of the keyboard' }).click()
  expect(await accessibilityFaults(page), 'the help').toEqual([])
  leave()
  await leading
})
