import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { width } from '../../src/cli/text.ts'
import { connect, type InspectedRoom, type Locks } from '../../src/index.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { openSqlite, sharedStores, type TestStore } from './stores.ts'
import { Tmux, type TmuxOptions } from './tmux.ts'

let store: TestStore
let locks: Locks
beforeEach(async () => {
  store = await openSqlite()
  locks = await connect(store.url, { label: 'tester' })
})
afterEach(async () => {
  await locks.close()
  await store[Symbol.asyncDispose]()
})

const RESTORED = { isOtherScreen: false, hasCursor: true, wraps: true }

test.each(sharedStores)('top shows holders and waiters, as they change, on $name', async ({ open }) => {
  await using store = await open()
  await using locks = await connect(store.url, { label: 'tester' })
  await using terminal = start({ store })
  await terminal.shows('Nobody holds a key.')
  const held = await locks.acquire('job:backup')
  const waits = locks.acquire('job:backup', { wait: '1m' })
  // From looks that a busy machine makes late, the ttl of 30 s is told a little too long or too short.
  await terminal.shows(
    /job:backup +H +mutex +\S+:\d+ \(tester\) +[\d.]+m?s +[\d.]+s +(?:29|3[0-2])s +(?:\d+ +)?1 +[\d.]+m?s$/m,
  )
  await terminal.shows(/^1 key, 1 held, 1 waiting, the longest for /m)
  await held.release()
  const next = await waits
  await terminal.shows(/job:backup +H .* 0 +–$/m)
  await terminal.shows(/^\d+\.\d hand-overs\/s, 0 expired in a minute; a look takes /m)
  await next.release()
  await terminal.shows('Nobody holds a key.')
})

test('top obeys its keys: sorting, marking a line, the page of a key, help, pausing', async () => {
  for (const key of ['b', 'a']) await locks.acquire(key)
  const held = await locks.acquire('c')
  const waits = locks.acquire('c', { wait: '1m' })
  await until('somebody waits', async () => (await rooms()).some(({ queue }) => queue.length > 0))
  await using terminal = start()
  const order = (): string =>
    [...terminal.screen.matchAll(/^[> ] ([abc]) +H /gm)].map(([, key]) => key).join('')
  // The title may be drawn already, and the lines not yet.
  const isSorted = (keys: string) => until(`the order is ${keys}`, () => order() === keys)
  await terminal.shows(/^ {2}c +H .* 1 +/m)
  await isSorted('cab')
  terminal.press('K')
  await terminal.shows('KEY▾')
  await isSorted('abc')
  terminal.press('r')
  await terminal.shows('KEY▴')
  await isSorted('cba')
  terminal.press('>')
  await terminal.shows('▾  MODE')
  terminal.press('Down')
  await terminal.shows(/^> [abc] /m)
  terminal.press('K', 'End', 'Enter')
  await terminal.shows(/^c\n\nHOLDERS 1\nHOLDER +MODE +HELD +LEFT +TTL +FENCE +ID\n/m)
  await terminal.shows(/^QUEUE 1, in order of arrival\n.*\n1 {2}\S+ \(tester\) /m)
  terminal.press('h')
  await terminal.shows(/^q Ctrl-C F10 +quit$/m)
  terminal.press('h')
  await terminal.shows(/^QUEUE 1, in order of arrival$/m)
  terminal.press('q', 'h')
  await terminal.shows(/^q Ctrl-C F10 +quit$/m)
  terminal.press('Escape')
  await terminal.shows(/^> c /m)
  terminal.press('p')
  await terminal.shows('[paused]')
  const late = await locks.acquire('later')
  await until('the store shows it', async () => (await rooms()).some(({ key }) => key === 'later'))
  expect(terminal.screen).not.toContain('later')
  terminal.press('p')
  await terminal.shows('later')
  await late.release()
  expect(held.state).toBe('held')
  const evicted = await locks.evictAll('c', { reason: 'the test is over' })
  expect(evicted).toHaveLength(2)
  await expect(waits).rejects.toThrow()
})

test('top shows who does not renew, and for how long', async () => {
  await using server = await startRedis()
  await using locks = await connect(server.url, { label: 'tester' })
  await using terminal = start({ env: { HOLDFAST_STORE: server.url } })
  await terminal.shows('Nobody holds a key.')
  await locks.acquire('living')
  await locks.acquire('stuck', { ttl: '10m', renew: false })
  terminal.press('K')
  await terminal.shows(/^ {2}stuck +H .* 10m/m)
  // As if seven minutes had passed: so three minutes are left to see it, however slow the machine is.
  await server.command('EVAL', AGED, '1', 'holdfast:{stuck}', '420000')
  await terminal.shows(/^ {2}stuck +L /m)
  expect(terminal.screen).toMatch(/^ {2}living +H /m)
  terminal.press('Down', 'Down', 'Enter')
  await terminal.shows(/\(tester\) is not renewing for [789]m .*\.$/m)
})

/** Makes a room with a lone holder older by so many milliseconds. */
const AGED = `
local start, since, rest = string.match(redis.call('GET', KEYS[1]), '^(2 t[^%z]+%z%d+ )(%d+)( .*)$')
local left = redis.call('PTTL', KEYS[1]) - ARGV[1]
redis.call('SET', KEYS[1], start .. string.format('%.0f', since - ARGV[1] * 1000) .. rest, 'PX', left)
`

test('top evicts the holders of the marked key, once it has asked why', async () => {
  const held = await locks.acquire('job:backup')
  const waits = locks.acquire('job:backup', { wait: '1m' })
  await using terminal = start()
  await terminal.shows(/^ {2}job:backup +H .* 1 +/m)
  terminal.press('x')
  await terminal.shows('Mark a key that is held first.')
  terminal.press('Down', 'F9')
  await terminal.shows(/^Evict \S+:\d+ \(tester\) from job:backup\? Esc: no\. Enter: yes\. Reason: _$/m)
  terminal.press('Escape')
  await terminal.shownNoMore('Evict ')
  terminal.press('C-k', 'Enter')
  await terminal.shows('Nobody was evicted: say why.')
  terminal.press('x')
  terminal.type('it hangs')
  await terminal.shows('Reason: it hangs_')
  terminal.press('Enter')
  await terminal.shows('Evicted 1 holder from job:backup.')
  await until('the holder has heard', () => held.signal.aborted)
  expect(held.signal.reason).toMatchObject({ reason: 'evicted', evictedBecause: 'it hangs' })
  const next = await waits
  terminal.press('Enter')
  await terminal.shows(/ evicted +\S+ \(tester\) /m)
  await next.release()
})

test('top does not evict who has got the key since it asked', async () => {
  const first = await locks.acquire('key')
  await using terminal = start()
  await terminal.shows(/^ {2}key +H /m)
  terminal.press('Down', 'x')
  await terminal.shows('Reason: _')
  await first.release()
  const second = await locks.acquire('key')
  await terminal.shows(/^> key +H /m)
  terminal.type('it hangs')
  terminal.press('Enter')
  await terminal.shows('The holder had gone from key.')
  expect((await locks.peek('key'))?.holders).toMatchObject([{ id: second.id }])
  await second.release()
})

test('top evicts nobody where it cannot ask, and says when the server refuses', async () => {
  await using server = await startRedis()
  await server.command('ACL', 'SETUSER', 'viewer', 'on', '>secret', '+@read', '~*')
  await using held = await connect(server.url, { label: 'tester' })
  const lease = await held.acquire('key')
  const url = `redis://viewer:secret@127.0.0.1:${server.port}`
  await using terminal = start({ env: { HOLDFAST_STORE: url } })
  await terminal.shows(/^ {2}key +H /m)
  terminal.press('Down')
  await terminal.shows(/^> key +H /m)
  terminal.resize(100, 3)
  // The head of the table in the first line is how `top` itself draws three lines.
  await until('there is no room for a question', () => /^ {2}KEY /.test(terminal.lines()[0] ?? ''))
  // The order shows that `top` has read the key before the size changes again.
  terminal.press('x', 'N')
  await terminal.shows(/KEY▾/)
  terminal.resize(100, 24)
  await terminal.shows(/^1 key, 1 held/m)
  expect(terminal.screen).not.toContain('Evict')
  terminal.press('x')
  await terminal.shows('Reason: _')
  terminal.type('why')
  terminal.press('Enter')
  await terminal.shows(/^The eviction is not confirmed\. The Redis/m)
  expect(lease.signal.aborted).toBe(false)
  await lease.release()
})

test('top evicts nobody at Enter on a screen that became too small for the question', async () => {
  const held = await locks.acquire('key')
  await using terminal = start()
  await terminal.shows(/^ {2}key +H /m)
  terminal.press('Down', 'x')
  terminal.type('it hangs')
  await terminal.shows('Reason: it hangs_')
  terminal.resize(100, 3)
  await until('there is no room for a question', () => /^ {2}KEY /.test(terminal.lines()[0] ?? ''))
  terminal.press('Enter', '!')
  terminal.resize(100, 24)
  // The question is still open, and what was typed after Enter belongs to its answer.
  await terminal.shows('Reason: it hangs!_')
  expect(held.signal.aborted).toBe(false)
  terminal.press('Enter')
  await terminal.shows('Evicted 1 holder from key.')
})

test('Enter ends a filter also on a screen that became too small to show it', async () => {
  const held = await locks.acquireAll(['one', 'two'])
  await using terminal = start()
  await terminal.shows(/^ {2}two +H /m)
  terminal.press('/')
  terminal.type('two')
  await terminal.shows('two_')
  terminal.resize(100, 3)
  await until('there is no room for a question', () => /^ {2}KEY /.test(terminal.lines()[0] ?? ''))
  terminal.press('Enter', 'N')
  await terminal.shows(/KEY▾/)
  terminal.resize(100, 24)
  await terminal.shownNoMore('one')
  await terminal.shows(/^ {2}two +H /m)
  await held.release()
})

test('top is as large as its terminal, also when that was resized while top was stopped', async () => {
  await using terminal = start()
  await terminal.shows('Nobody holds a key.')
  terminal.press('C-z')
  await terminal.shows(/Stopped/)
  terminal.resize(60, 12)
  await locks.acquire('key')
  terminal.enter('fg')
  await terminal.shows(/^ {2}key +H /m)
  await until('the hints are at the bottom', () => /^q quit/.test(terminal.lines()[11] ?? ''))
})

test('top copies a key into the clipboard of the terminal', async () => {
  await locks.acquire('job:日本')
  await using terminal = start()
  await terminal.shows('job:日本')
  terminal.press('c')
  await terminal.shows('Mark a line first.')
  terminal.press('Down', 'c')
  await terminal.shows('Copied job:日本, if this terminal lets programs copy.')
  expect(terminal.clipboard).toBe('job:日本')
})

test('top hears the mouse: a click marks, opens and sorts, and the wheel moves', async () => {
  for (const key of ['a', 'b', 'c']) await locks.acquire(key)
  await using terminal = start()
  terminal.press('N')
  await terminal.shows(/KEY▾/)
  await terminal.shows(/^ {2}c +H /m)
  const lineOf = (text: RegExp): number => terminal.lines().findIndex((line) => text.test(line))
  const click = (column: number, line: number): void => {
    terminal.type(`\x1b[<0;${column + 1};${line + 1}M\x1b[<0;${column + 1};${line + 1}m`)
  }
  click(4, lineOf(/^ {2}b +H/))
  await terminal.shows(/^> b +H /m)
  terminal.type('\x1b[<65;5;9M')
  await terminal.shows(/^> c +H /m)
  terminal.type('\x1b[<64;5;9M')
  await terminal.shows(/^> a +H /m)
  const titles = lineOf(/KEY▾/)
  click((terminal.lines()[titles] ?? '').indexOf('HELD'), titles)
  await terminal.shows(/HELD▾|HEL▾/)
  click(4, lineOf(/^> a +H/))
  await terminal.shows(/^HOLDERS 1$/m)
  terminal.press('F10')
  await terminal.shows(/^> a +H /m)
  expect(terminal.hasMouse).toBe(true)
  terminal.press('m')
  await until('the mouse belongs to the terminal', () => !terminal.hasMouse)
  terminal.press('F1')
  await terminal.shows(/^q Ctrl-C F10 +quit$/m)
})

test('top shows an election as one row, also when nobody leads it', async () => {
  const [ending, observing] = [new AbortController(), new AbortController()]
  const campaign = locks
    .election('mailer')
    .campaign(
      { signal: ending.signal },
      ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
    )
  await using terminal = start()
  await terminal.shows(/^ {2}mailer +H +election /m)
  await until('the leader has its mark', async () =>
    (await rooms()).some(({ key }) => key === 'mailer#leader'),
  )
  await terminal.shows(/^1 key, 1 held/m)
  expect(terminal.screen).not.toContain('#leader')
  // Nobody leads now, and an observer holds the vacancy.
  const watching = locks.election('mailer').observe({ signal: observing.signal })
  await watching.next()
  ending.abort()
  await expect(campaign).rejects.toThrow()
  await terminal.shows(/^ {2}mailer#vacant +N +election +nobody leads /m)
  await terminal.shows(/^1 key, 0 held/m)
  const leading = new AbortController()
  const term = locks
    .election('mailer')
    .campaign(
      { signal: leading.signal },
      ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
    )
  await terminal.shows(/^ {2}mailer +H +election /m)
  await terminal.shownNoMore('#vacant')
  await terminal.shows(/^1 key, 1 held/m)
  for (const each of [observing, leading]) each.abort()
  await expect(term).rejects.toThrow()
})

test('top filters by key and by holder while it runs', async () => {
  for (const key of ['job:1', 'job:2', 'other']) await locks.acquire(key)
  await using terminal = start()
  await terminal.shows('other')
  terminal.press('K', 'Down', 'End')
  await terminal.shows(/^> other /m)
  terminal.press('/')
  await terminal.shows(/^Filter: _$/m)
  terminal.type('JOB:q')
  await terminal.shows(/^Filter: JOB:q_$/m)
  terminal.press('BSpace', 'Enter')
  await terminal.shownNoMore('other')
  await terminal.shows('2 keys shown')
  await terminal.shows('filter: JOB:')
  // The marked line is hidden, so none is marked.
  terminal.press('c')
  await terminal.shows('Mark a line first.')
  terminal.press('Enter')
  await terminal.shows(/^job:\d\n\nHOLDERS 1$/m)
  terminal.press('q')
  await terminal.shows('2 keys shown')
  terminal.press('Escape')
  await terminal.shows('other')
  terminal.press('/')
  terminal.type('(TESTER)')
  terminal.press('Enter')
  await terminal.shows('3 keys shown')
  terminal.press('/', 'C-u')
  terminal.type('nobody')
  terminal.press('Enter')
  await terminal.shows('No key and no holder has this text.')
})

describe('top leaves the terminal as it was', () => {
  test.each([
    ['q', 0, (terminal: Tmux) => terminal.press('q')],
    ['Ctrl-C', 0, (terminal: Tmux) => terminal.press('C-c')],
    ['SIGTERM', 143, (terminal: Tmux) => process.kill(terminal.pid(), 'SIGTERM')],
    ['SIGINT', 130, (terminal: Tmux) => process.kill(terminal.pid(), 'SIGINT')],
    ['SIGHUP', 129, (terminal: Tmux) => process.kill(terminal.pid(), 'SIGHUP')],
    ['SIGQUIT', 131, (terminal: Tmux) => process.kill(terminal.pid(), 'SIGQUIT')],
  ])('after %s', async (_, code, end) => {
    await using terminal = start()
    await terminal.shows('Nobody holds a key.')
    expect(terminal.modes).toEqual({ isOtherScreen: true, hasCursor: false, wraps: false })
    end(terminal)
    await terminal.shows(`exit ${code} icanon`)
    await expectRestored(terminal)
  })

  test('after a mistake of its own', async () => {
    const mistake = `process.on('SIGUSR2', () => { throw new Error('a mistake') })`
    await using terminal = start({
      env: { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(mistake)}` },
    })
    await terminal.shows('Nobody holds a key.')
    process.kill(terminal.pid(), 'SIGUSR2')
    await terminal.shows('Error: a mistake')
    await terminal.shows('exit 1 icanon')
    await expectRestored(terminal)
  })

  test.each([
    ['Ctrl-Z', (terminal: Tmux) => terminal.press('C-z')],
    ['SIGTSTP', (terminal: Tmux) => process.kill(terminal.pid(), 'SIGTSTP')],
  ])('while it is stopped by %s, and takes it back when it goes on', async (_, stop) => {
    await using terminal = start()
    for (let round = 1; round <= 2; round += 1) {
      await terminal.shows('Nobody holds a key.')
      stop(terminal)
      await terminal.shows(/Stopped/)
      await expectRestored(terminal)
      const lease = await locks.acquire('meanwhile')
      terminal.enter('fg; echo ended $((1 + 1))')
      await terminal.shows('meanwhile')
      expect(terminal.modes).toEqual({ isOtherScreen: true, hasCursor: false, wraps: false })
      await lease.release()
    }
    await terminal.shows('Nobody holds a key.')
    terminal.press('q')
    await terminal.shows('ended 2')
    await expectRestored(terminal)
  })

  test('and ends when the terminal is gone', async () => {
    const terminal = start()
    await terminal.shows('Nobody holds a key.')
    const pid = terminal.pid()
    await terminal[Symbol.asyncDispose]()
    await until('it is gone', () => !isRunning(pid))
  })

  async function expectRestored(terminal: Tmux): Promise<void> {
    expect(terminal.modes).toEqual(RESTORED)
    terminal.enter('clear; stty -a')
    await terminal.shows(/^isig icanon iexten echo /m)
    expect(terminal.screen).not.toContain('Nobody holds')
  }
})

test('top fits into every size, whatever keys are called', async () => {
  const names = [
    'short',
    'x'.repeat(300),
    '日本語の請求書'.repeat(9),
    '🔒'.repeat(40),
    'evil\x1b[2J\x1b]0;owned\x07',
    'a\u202eb',
  ]
  for (const name of names) await locks.acquire(name)
  await using terminal = start()
  for (const [columns, rows] of [
    [100, 24],
    [80, 24],
    [60, 15],
    [40, 10],
    [21, 7],
    [10, 4],
    [200, 50],
  ] as const) {
    terminal.resize(columns, rows)
    await terminal.shows(rows >= 9 ? /^6 keys, 6 held/m : /KEY/)
    await until('each line is in its place', () => {
      const lines = terminal.lines()
      return (
        lines.filter((line) => /^ {2}\S/.test(line) && !line.includes('KEY')).length >=
        Math.min(6, rows - (rows >= 9 ? 6 : 3))
      )
    })
    for (const line of terminal.lines()) expect(width(line)).toBeLessThanOrEqual(columns)
  }
  await terminal.shows('evil\\x1b[2J\\x1b]0;owned\\x07')
  await terminal.shows('a\\u{202e}b')
  await terminal.shows('日本語の請求書日本語')
})

test('top uses no colours where NO_COLOR is set, and marks the line all the same', async () => {
  await locks.acquire('key')
  await using coloured = start()
  await using plain = start({ env: { NO_COLOR: '1' } })
  for (const terminal of [coloured, plain]) {
    await terminal.shows(/^ {2}key +H /m)
    terminal.press('Down')
    await terminal.shows(/^> key /m)
  }
  expect(coloured.lines({ styled: true }).join('\n')).toContain('\x1b[7m')
  expect(plain.lines({ styled: true }).join('\n')).not.toContain('\x1b[')
})

test('top goes on while the store is away, and shows it again when it is back', async () => {
  await using server = await startRedis()
  const held = await connect(server.url)
  await held.acquire('before')
  await using terminal = start({ store: server })
  await terminal.shows('before')
  await held.close()
  await server.kill()
  await terminal.shows(/^STORE AWAY since \d\d:\d\d:\d\d: The Redis server could not be reached/m)
  await server.restart()
  await using again = await connect(server.url)
  await again.acquire('afterwards')
  await terminal.shows('afterwards')
  await terminal.shownNoMore('STORE AWAY')
  await server.pause()
  await terminal.shows(/^STORE AWAY since .*: There is no answer\.$/m)
  terminal.press('q')
  await terminal.shows('exit 0')
  server.resume()
})

function start({ store: used = store, ...options }: TmuxOptions & { readonly store?: TestStore } = {}): Tmux {
  const terminal = new Tmux({ ...options, env: { HOLDFAST_STORE: used.url, ...options.env } })
  // The shell repairs the settings of the terminal before its prompt, so this reads them before that.
  terminal.enter(`eval "$HOLDFAST top --interval 200ms"; echo exit $? $(stty -a | grep -o -e '-*icanon')`)
  return terminal
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

async function rooms(): Promise<readonly InspectedRoom[]> {
  const found: InspectedRoom[] = []
  for await (const room of locks.inspect({ prefix: '' })) found.push(room)
  return found
}
