import { expect, test } from 'vitest'
import { createDashboard } from '../../src/dashboard/index.ts'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { startBrowser, visit } from './browser.ts'
import { serve } from './dashboard-server.ts'

test('a holder that does not renew is marked, with its ttl and since when, and one that renews is not', async () => {
  const locks = createLocks(memoryStore(), { label: 'web-1' })
  const dashboard = createDashboard(locks)
  const server = await serve(dashboard)
  const browser = await startBrowser()
  try {
    await using visited = await visit(browser, server.url)
    const { page } = visited
    await page.getByText('No key is held.').waitFor()
    await locks.acquire('living', { ttl: '20s' })
    await locks.acquire('stuck', { ttl: '20s', renew: false })
    const left = (key: string) => page.getByRole('row', { name: key }).locator('.left')
    // From a look that a busy machine makes late, the ttl of 20 s is told a little too long.
    await left('stuck')
      .getByText(/^of (?:19|2\d)s$/)
      .waitFor()
    await left('stuck')
      .getByText(/^not renewing for 1\ds$/)
      .waitFor()
    expect(await left('stuck').getAttribute('data-late')).toBe('true')
    expect(await left('stuck').getAttribute('title')).toMatch(/^not renewed since /)
    expect(await left('living').getAttribute('data-late')).toBeNull()
    expect(await page.getByRole('row', { name: 'living' }).locator('.held').getAttribute('title')).toMatch(
      /^since .* 20\d\d/,
    )
    expect(visited.wrongs).toEqual([])
  } finally {
    await browser.close()
    await dashboard.close()
    await server[Symbol.asyncDispose]()
    await locks.close()
  }
})
