// Takes the screenshots of the dashboard for the documentation, with a store under load: docs/images/dashboard-*.png.
//
//   npx tsx scripts/screenshots.ts [<folder>]
import { mkdirSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createDashboard } from '../src/dashboard/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { memoryStore } from '../src/stores/memory/index.ts'
import { startBrowser, visit } from '../test/dashboard/browser.ts'

const folder = process.argv[2] ?? 'docs/images'
const store = memoryStore()
const [first, second, worker, standby] = [
  ownerCalled('web-1'),
  ownerCalled('web-2'),
  ownerCalled('worker-1'),
  ownerCalled('worker-2'),
] as const
const owners = [first, second, worker, standby]
const dashboard = createDashboard(first, { title: 'Shop', allowEvict: true })
const server = createServer(dashboard).listen(0, '127.0.0.1')
const browser = await startBrowser()

function ownerCalled(label: string): Locks {
  return createLocks(store, { label })
}

/** Takes one key after another, and holds each for a while. */
async function contend(key: string, longestMs: number): Promise<void> {
  await Promise.all(
    owners.map(async (locks, index) => {
      for (;;) {
        await sleep(200 + Math.random() * longestMs)
        await locks.withLock(key, () => sleep(400 + (Math.random() * longestMs * (index + 1)) / 3))
      }
    }),
  )
}

for (const key of ['checkout:invoice-42', 'stock:warehouse-north', 'mail:outbox']) void contend(key, 3000)
for (let number = 1040; number < 1052; number += 1)
  await owners[number % 4]?.acquire(`order:${number}`, { ttl: '2m' })
for (const locks of owners.slice(0, 3)) await locks.readWrite('catalogue').acquireRead()
for (const units of [1, 2]) await worker.semaphore('thumbnails', 5).acquire({ units })
void worker.election('mailer').campaign({ value: 'http://10.0.0.3:8080' }, () => sleep(600_000))
await sleep(100)
void standby.election('mailer').campaign(() => sleep(600_000))
// A lease without renewal: to the store its process looks dead.
await standby.acquire('report:nightly', { ttl: '20s', renew: false })

const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
const desktop = { width: 1120, height: 640 }
const pictures = [
  { name: 'keys', path: '#/keys', colorScheme: 'light', viewport: desktop },
  {
    name: 'key',
    path: '#/key?key=checkout%3Ainvoice-42',
    colorScheme: 'dark',
    viewport: { ...desktop, height: 760 },
  },
  { name: 'contention', path: '#/contention', colorScheme: 'light', viewport: { ...desktop, height: 360 } },
  { name: 'phone', path: '#/keys?sort=waiting', colorScheme: 'light', viewport: { width: 360, height: 640 } },
] as const
const visits = await Promise.all(
  pictures.map(async ({ name, path, ...options }) => ({
    name,
    visited: await visit(browser, url + path, options),
  })),
)
// Until the charts have enough points.
await sleep(60_000)
mkdirSync(folder, { recursive: true })
for (const { name, visited } of visits) {
  await visited.page.screenshot({ path: join(folder, `dashboard-${name}.png`) })
}
await browser.close()
process.exit()
