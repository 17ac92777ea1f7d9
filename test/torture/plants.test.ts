import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Shell } from '../cli/holdfast-process.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'

const PLANTS = fileURLToPath(new URL('plants.mjs', import.meta.url))

let folder: string
let redis: RedisServer
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-torture-'))
  redis = await startRedis()
})
afterEach(async () => {
  await redis.close()
  rmSync(folder, { recursive: true, force: true })
})

/** For each mistake of a store: the faults that bring it to light, and one of these checks has to notice. */
test.each([
  { plant: 'no-owner-check', nemesis: 'none', noticed: ['exclusion'] },
  { plant: 'clients-clock', nemesis: 'clock', noticed: ['exclusion', 'forgotten'] },
  { plant: 'restarting-fences', nemesis: 'none', noticed: ['fences'] },
  { plant: 'lost-wakes', nemesis: 'none', noticed: ['wakes'], ttl: '3s', settle: '9s' },
  { plant: 'reviving-renewal', nemesis: 'none', noticed: ['exclusion', 'forgotten'] },
  { plant: 'dead-connection', nemesis: 'cut', noticed: ['recovery'] },
])(
  'a store with the mistake $plant is found out',
  async ({ plant, nemesis, noticed, ttl = '1s', settle = '5s' }) => {
    const shell = new Shell({ NODE_OPTIONS: `--import ${PLANTS}`, HOLDFAST_TEST_PLANT: plant })
    const args = [
      '--store',
      redis.url,
      '--for',
      '8s',
      '--ttl',
      ttl,
      '--settle',
      settle,
      '--seed',
      '1',
      '--json',
    ]
    const { code, stdout, stderr } = await shell.run([
      'torture',
      ...args,
      '--nemesis',
      nemesis,
      '--out',
      join(folder, 'out'),
    ])
    const verdict = JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
    const broken = verdict.checks.filter((check: { broken: number }) => check.broken > 0)
    const names: string[] = broken.map(({ name }: { name: string }) => name)
    // Which of them it is depends on whether somebody works when the fault comes.
    const isNoticed = names.some((name) => noticed.includes(name))
    expect({ code, holds: verdict.holds, isNoticed }, `${names} ${stderr}`).toEqual({
      code: 1,
      holds: false,
      isNoticed: true,
    })
    expect(broken[0].evidence[0].text).toMatch(/process|fence/)
    await shell.close()
  },
)

test('a kind of lock that never works is named', async () => {
  const shell = new Shell({ NODE_OPTIONS: `--import ${PLANTS}`, HOLDFAST_TEST_PLANT: 'no-leader' })
  const { code, stdout, stderr } = await shell.run([
    ...['torture', '--store', redis.url, '--for', '6s', '--ttl', '1s', '--settle', '5s', '--seed', '1'],
    ...['--nemesis', 'none', '--out', join(folder, 'out')],
  ])
  expect(code, stdout).toBe(1)
  expect(stderr).toMatch(/no process got these keys during the faults: holdfast-torture:1:leader\n/)
  await shell.close()
})
