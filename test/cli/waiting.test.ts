import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { waitingText } from '../../src/cli/waiting-line.ts'
import { connect, type InspectedRoom, type Locks } from '../../src/index.ts'
import { until } from '../servers/until.ts'
import { Shell } from './holdfast-process.ts'
import { openSqlite, type TestStore } from './stores.ts'
import { Tmux } from './tmux.ts'

describe('on a terminal, whoever waits', () => {
  let store: TestStore
  let locks: Locks
  let shell: Shell
  beforeEach(async () => {
    store = await openSqlite()
    locks = await connect(store.url, { label: 'tester' })
    shell = new Shell({ HOLDFAST_STORE: store.url })
  })
  afterEach(async () => {
    await shell.close()
    await locks.close()
    await store[Symbol.asyncDispose]()
  })

  test('sees for whom, and how many are ahead, until the key is free', async () => {
    await using terminal = new Tmux({ env: { HOLDFAST_STORE: store.url } })
    const held = await locks.acquire('backup')
    const before = shell.start(['run', 'backup', '--', 'sh', '-c', 'echo holds; exec sleep 60'])
    await until('somebody waits', async () => (await room())?.queue.length === 1)
    terminal.enter(`clear; eval "$HOLDFAST run backup -- echo it is 'our turn'"`)
    await terminal.shows(/^holdfast: waiting for \S+:\d+ \(tester\), 1 ahead, [\d.]+m?s$/m)
    await held.release()
    await before.prints('holds')
    await terminal.shows(/^holdfast: waiting for \S+:\d+ \(sh\), 0 ahead, [\d.]+m?s$/m)
    before.signal('SIGTERM')
    await before.exit
    await terminal.shows(/^it is our turn$/m)
    expect(terminal.screen).not.toContain('waiting for')
  })

  test('sees the line cut to a narrow terminal, and nothing of it after Ctrl-C', async () => {
    await using terminal = new Tmux({ columns: 50, env: { HOLDFAST_STORE: store.url } })
    const held = await locks.acquire('backup')
    terminal.enter('clear; eval "$HOLDFAST acquire backup --ttl 1m"')
    await terminal.shows(/^holdfast: waiting for .*…?.*, 0 ahead, [\d.]+m?s$/m)
    terminal.press('C-c')
    await terminal.shownNoMore('waiting for')
    await held.release()
  })

  test('prints nothing where standard error is no terminal', async () => {
    const held = await locks.acquire('backup')
    const waiting = shell.start(['run', 'backup', '--', 'true'])
    await until('somebody waits', async () => (await room())?.queue.length === 1)
    await held.release()
    expect(await waiting.exit).toBe(0)
    expect(waiting.stderr).toBe('')
  })

  async function room(): Promise<InspectedRoom | undefined> {
    for await (const found of locks.inspect({ prefix: 'backup' })) return found
    return undefined
  }
})

describe('the line of a waiter', () => {
  const holder = {
    id: 'h',
    owner: { host: 'web-1', pid: 4711 },
    units: 1,
    limit: 1,
    fence: 1n,
    heldMs: 1,
    remainingMs: 1,
    state: 'held',
  } as const
  const waiter = (id: string) => ({ id, owner: {}, units: 1, limit: 1, waitedMs: 1 })
  const room = { key: 'k', holders: [holder], queue: ['a', 'b', 'c'].map(waiter), closedMs: 0 }

  test.each([
    ['its place', room, 'c', 'waiting for web-1:4711, 2 ahead'],
    ['the whole queue, before it has a place', room, undefined, 'waiting for web-1:4711, 3 ahead'],
    [
      'how many hold',
      { ...room, holders: [holder, holder] },
      'a',
      'waiting for web-1:4711 and 1 more, 0 ahead',
    ],
    [
      'a lock-delay',
      { ...room, holders: [], closedMs: 5 },
      'a',
      'waiting for the end of a lock-delay, 0 ahead',
    ],
    ['that nobody holds', { ...room, holders: [] }, 'b', 'waiting for the key, 1 ahead'],
    [
      'text of strangers, escaped',
      { ...room, holders: [{ ...holder, owner: { host: 'a\x1b[2J', pid: 1 } }] },
      'a',
      'waiting for a\\x1b[2J:1, 0 ahead',
    ],
  ])('tells %s', (_, seen, id, text) => {
    expect(waitingText(seen, id)).toBe(text)
  })
})
