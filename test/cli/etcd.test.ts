import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type EtcdCluster, type EtcdServer, startEtcd, startEtcdCluster } from '../servers/etcd-server.ts'
import { Shell } from './holdfast-process.ts'

/**
 * The etcd client keeps no process alive by itself. A command that does not wait for it ends with exit code 13 and
 * without a word.
 */
let shell: Shell
beforeEach(() => {
  shell = new Shell()
})
afterEach(() => shell.close())

function urlOf(urls: readonly string[], credentials = ''): string {
  return `etcd://${credentials}${urls.map((url) => new URL(url).host).join(',')}`
}

async function doctor(url: string): Promise<{ code: number; verdicts: readonly string[] }> {
  const { code, stdout, stderr } = await shell.run(['doctor', '--json', '--store', url])
  expect(stderr).toBe('')
  const { findings } = JSON.parse(stdout) as { findings: { check: string; verdict: string }[] }
  // The etcd of this machine may be an old one, of which the doctor warns.
  const wrong = findings.filter(({ check, verdict }) => verdict !== 'ok' && check !== 'version')
  return { code, verdicts: wrong.map(({ check }) => check) }
}

const commands = [
  ['ls'],
  ['show', 'key'],
  ['evict', 'free', '--reason', 'a test'],
  ['top', '--once'],
  ['dashboard', '--port', '0'],
  ['run', '--wait', '3s', 'key', '--', 'true'],
]

describe('etcd with three members', () => {
  let cluster: EtcdCluster
  beforeAll(async () => {
    cluster = await startEtcdCluster()
  })
  afterAll(() => cluster.close())

  test('doctor always has a verdict, however often it is asked', async () => {
    for (let times = 0; times < 6; times += 1) {
      expect(await doctor(urlOf(cluster.urls))).toEqual({ code: 0, verdicts: [] })
    }
  })

  test('every command ends with a code of its own while all members hang, and says why', async () => {
    for (const member of cluster.members) await member.pause()
    try {
      const [examined, ...ended] = await Promise.all([
        doctor(urlOf(cluster.urls)),
        ...commands.map((args) =>
          shell.run([args[0] as string, '--store', urlOf(cluster.urls), ...args.slice(1)]),
        ),
      ])
      expect(examined).toEqual({ code: 1, verdicts: ['connection', ...Array(3).fill('connection')] })
      for (const { code, stdout, stderr } of ended) {
        expect({ code, stdout }).toEqual({ code: 69, stdout: '' })
        expect(stderr).toMatch(/^holdfast: [^\n]+\n$/)
      }
    } finally {
      for (const member of cluster.members) member.resume()
    }
  })

  test('doctor has a verdict while one member hangs, while one is gone, and while most members are gone', async () => {
    const [first, second] = cluster.members as [EtcdServer, EtcdServer]
    await first.pause()
    expect((await doctor(urlOf(cluster.urls))).verdicts).toContain('connection')
    first.resume()
    await first.kill()
    expect((await doctor(urlOf(cluster.urls))).verdicts).toContain('connection')
    await second.kill()
    expect((await doctor(urlOf(cluster.urls))).code).toBe(1)
  })
})

test('doctor, and every other command, works where etcd asks for a password', async () => {
  await using server = await startEtcd()
  await server.enableAuth('sesame')
  const url = urlOf([server.url], 'root:sesame@')
  expect(await doctor(url)).toEqual({ code: 0, verdicts: [] })
  const codes = await Promise.all(
    commands
      .filter(([name]) => name !== 'dashboard')
      .map(async (args) => (await shell.run([args[0] as string, '--store', url, ...args.slice(1)])).code),
  )
  // There is no ticket to show or to evict.
  expect(codes).toEqual([0, 0, 1, 0, 0])
})
