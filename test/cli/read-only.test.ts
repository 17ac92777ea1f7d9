import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { connect, type Lease, type Locks } from '../../src/index.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { readProjectFile } from '../tidy/project.ts'
import { Shell } from './holdfast-process.ts'

const page = readProjectFile('docs/inspect.md')

interface Place extends AsyncDisposable {
  readonly writer: string
  /** A user that may only read. */
  readonly viewer: string
  /** The same user on a server that follows the other one. */
  readonly behind: string
}

const places: readonly { readonly name: string; open(): Promise<Place> }[] = [
  {
    name: 'redis',
    async open() {
      const primary = await startRedis()
      const replica = await startRedis({ replicaOf: primary })
      const user = /^ACL SETUSER viewer .*$/m.exec(page)?.[0] ?? ''
      for (const { command } of [primary, replica]) await command(...user.split(' '))
      const viewerOf = ({ port }: { port: number }) => `redis://viewer:a-good-password@127.0.0.1:${port}`
      return {
        writer: primary.url,
        viewer: viewerOf(primary),
        behind: viewerOf(replica),
        async [Symbol.asyncDispose]() {
          await replica.close()
          await primary.close()
        },
      }
    },
  },
  {
    name: 'postgres',
    async open() {
      const primary = await startPostgres()
      const first = await connect(primary.url)
      await first.close()
      const [, grants = ''] = /```sql viewer\n(.*?)```/s.exec(page) ?? []
      await primary.sql(`create role viewer login; ${grants}`)
      const standby = await startPostgres({ standbyOf: primary })
      const viewerOf = ({ url }: { url: string }) => url.replace('holdfast@', 'viewer@')
      return {
        writer: primary.url,
        viewer: viewerOf(primary),
        behind: viewerOf(standby),
        async [Symbol.asyncDispose]() {
          await standby.close()
          await primary.close()
        },
      }
    },
  },
]

describe.each(places)('with a user of $name that may only read', ({ open }) => {
  let place: Place
  let locks: Locks
  let lease: Lease
  let shell: Shell
  beforeAll(async () => {
    place = await open()
    locks = await connect(place.writer, { label: 'writer' })
    lease = await locks.acquire('job:backup', { ttl: '10m' })
  })
  afterAll(async () => {
    await lease.release()
    await locks.close()
    await place[Symbol.asyncDispose]()
  })
  beforeEach(() => {
    shell = new Shell({ HOLDFAST_STORE: place.viewer })
  })
  afterEach(() => shell.close())

  const looks = [
    ['ls', ['ls']],
    ['show', ['show', 'job:backup']],
    ['top', ['top', '--once']],
    ['top --json', ['top', '--once', '--json']],
  ] as const

  test.each(looks)('%s shows who holds a key', async (_, args) => {
    const { code, stdout, stderr } = await shell.run(args)
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toMatch(/job:backup/)
    expect(stdout).toMatch(/writer/)
  })

  test.each(looks)('%s says what it cannot know on a server that follows another one', async (_, args) => {
    const asks = async (): Promise<{ code: number; stdout: string; stderr: string }> =>
      shell.run(args, { env: { HOLDFAST_STORE: place.behind } })
    await expect.poll(async () => (await asks()).stdout, { timeout: 20_000 }).toContain('writer')
    const { code, stdout, stderr } = await asks()
    expect(code).toBe(0)
    expect(`${stdout}${stderr}`).toMatch(/The \w+ server is a (replica|standby)\. What its primary did/)
  })

  test('the dashboard shows who holds a key, and what it cannot know', async () => {
    for (const url of [place.viewer, place.behind]) {
      const started = shell.start(['dashboard', '--port', '0', '--json'], { env: { HOLDFAST_STORE: url } })
      try {
        await started.prints('http://')
        const { url: address } = JSON.parse(started.stdout) as { url: string }
        const reply = await fetch(`${address}api/view?view=keys`)
        const seen = (await reply.json()) as { rows: { key: string }[]; caveats: string[] }
        expect(seen.rows.map(({ key }) => key)).toEqual(['job:backup'])
        expect(seen.caveats).toHaveLength(url === place.viewer ? 0 : 1)
      } finally {
        started.signal('SIGTERM')
      }
      expect(await started.exit).toBe(0)
    }
  })

  test('doctor --read-only looks at all that it may see, and says what it did not check', async () => {
    for (const url of [place.viewer, place.behind]) {
      const { code, stdout } = await shell.run(['doctor', '--read-only', '--store', url])
      expect([code, stdout]).toEqual([0, expect.stringMatching(/^ok +connection +.* may look\.$/m)])
      expect(stdout).toMatch(/^warning +rights +Only what a user who may read can see was checked\./m)
      expect(stdout).not.toMatch(/^problem/m)
      if (url === place.behind) expect(stdout).toMatch(/^warning +role +The server is a (replica|standby)/m)
    }
  })

  test('doctor without --read-only finds that this user gets no lock', async () => {
    const { code, stdout } = await shell.run(['doctor'])
    expect([code, stdout]).toEqual([1, expect.stringMatching(/^problem +connection /m)])
  })

  test('evict is refused by the server', async () => {
    const { code, stderr } = await shell.run(['evict', 'job:backup', '--reason', 'test'])
    expect([code, stderr]).toEqual([69, expect.stringMatching(/may not do what/)])
  })
})

describe('a lock file that is not there', () => {
  let folder: string
  let shell: Shell
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-looking-'))
    shell = new Shell({ XDG_STATE_HOME: folder, HOME: folder })
  })
  afterEach(async () => {
    await shell.close()
    rmSync(folder, { recursive: true, force: true })
  })

  const looks = [['ls'], ['show', 'key'], ['wait', 'key', '-w', '0'], ['top', '--once']]

  test('is refused where it is named, and is not made', async () => {
    const path = join(folder, 'no', 'locks.db')
    for (const words of looks)
      expect(await shell.run([...words, '--store', `sqlite:${path}`])).toEqual({
        code: 69,
        stdout: '',
        stderr: expect.stringMatching(/^holdfast: There is no lock file at "[^\n]+\n$/),
      })
    expect(readdirSync(folder)).toEqual([])
    writeFileSync(join(folder, 'empty.db'), '')
    expect(await shell.run(['ls', '--store', `sqlite:${join(folder, 'empty.db')}`])).toMatchObject({
      code: 69,
      stderr: expect.stringMatching(/^holdfast: The lock file "[^"]+" is empty\. [^\n]+\n$/),
    })
    expect(statSync(join(folder, 'empty.db')).size).toBe(0)
  })

  test('holds no key where it is the default one', async () => {
    for (const words of looks) expect((await shell.run(words)).code).toBe(0)
    expect(readdirSync(folder)).toEqual([])
    expect((await shell.run(['acquire', 'key', '--ttl', '1m'])).code).toBe(0)
    expect((await shell.run(['ls', '--json'])).stdout).toContain('"key"')
  })
})
