import { expect, onTestFinished, test } from 'vitest'
import { type LockLogger, type LogLevel, logLocks } from '../../src/observe/log/index.ts'
import { errorOf, scene } from '../engine/scene.ts'
import { until } from '../servers/until.ts'

function notebook(): { readonly lines: string[]; readonly logger: LockLogger } {
  const lines: string[] = []
  const write = (level: LogLevel) => (line: string) => lines.push(`${level} ${line}`)
  return {
    lines,
    logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
  }
}

test('it says in words who waits, holds, renews and releases', async () => {
  const { clock, locks, other } = scene()
  const { lines, logger } = notebook()
  const stop = logLocks(logger, { locks })
  const held = await other.locks.acquire('k')
  const waiting = locks.acquire('k')
  await clock.advance(1500)
  await held.release()
  const lease = await clock.until(waiting)
  await clock.advance(12_000)
  expect(await other.locks.tryAcquire('k')).toBeNull()
  await lease.release()
  expect(await locks.withLock('k', () => 1)).toBe(1)
  const fence = expect.stringMatching(/^debug holdfast: holds "k" after 1\.5 s, under fence \d+$/)
  expect(lines.slice(0, 5)).toEqual([
    'debug holdfast: asks for "k", for up to 60.0 s',
    'debug holdfast: waits for "k", as the next in turn',
    fence,
    expect.stringMatching(/^debug holdfast: renewed "k" in 0\.00 ms, \d+\.\d s left$/),
    'debug holdfast: released "k" after 12.0 s',
  ])
  expect(lines).toHaveLength(8)
  stop()
  await locks.withLock('k', () => 1)
  expect(lines).toHaveLength(8)
})

test('it warns of what is not as usual, and of a loss it says why', async () => {
  const { clock, locks, other, store } = scene()
  const { lines, logger } = notebook()
  const stop = logLocks(logger, { locks, level: 'warn' })
  const lost = await locks.acquire('lost', { ttl: '5s' })
  const evicted = await locks.acquire('evicted')
  await other.locks.evict('evicted', evicted.id, { reason: 'stuck\u001b[31m' })
  await clock.untilTrue(() => evicted.state === 'lost')
  const held = await other.locks.acquire('k')
  await clock.until(errorOf(locks.acquire('k', { wait: 100 })))
  await clock.until(errorOf(locks.acquire('k', { signal: AbortSignal.abort() })))
  const end = new AbortController()
  const aborted = errorOf(locks.acquire('k', { signal: end.signal }))
  await clock.advance(10)
  end.abort()
  await aborted
  store.always('fail')
  await clock.untilTrue(() => lost.state === 'lost')
  store.always('answer')
  await clock.advance(60_000)
  const said = lines.map((line) => line.replace(/\d+(\.\d+)? (ms|s)\b/g, 'N').replace(/fence \d+/, 'fence F'))
  expect(said.slice(0, 2)).toEqual([
    'warn holdfast: was evicted from "evicted" as a holder: stuck\\x1b[31m',
    expect.stringMatching(
      /^error holdfast: lost "evicted" after N, under fence F \(evicted\): The lease on /,
    ),
  ])
  expect(said[2]).toBe('warn holdfast: gave up "k" after N, 0 ahead')
  expect(said).toContainEqual(
    expect.stringMatching(/^warn holdfast: the scripted store failed in renew of "lost" \(ambiguous\): /),
  )
  expect(said).toContainEqual(expect.stringMatching(/^warn holdfast: could not renew "lost", N left: /))
  expect(said).toContainEqual(
    expect.stringMatching(/^error holdfast: lost "lost" after N, under fence F \(expired\): /),
  )
  expect(said.some((line) => /^(debug|info)/.test(line) || line.includes('aborted'))).toBe(false)
  stop()
  await held.release()
})

test('it tells of leaders, and of leases that go on elsewhere', async () => {
  const { clock, locks } = scene()
  const { lines, logger } = notebook()
  const stop = logLocks(logger, { locks, level: 'info' })
  await clock.until(locks.election('leader').campaign(() => 1))
  const lease = await locks.acquire('k')
  await (await locks.adopt(lease.detach())).release()
  expect(lines).toEqual([
    expect.stringMatching(/^info holdfast: leads "leader", under fence \d+$/),
    'info holdfast: no longer leads "leader" after 0.00 ms (done)',
    'info holdfast: let go of "k" without releasing it, after 0.00 ms',
    expect.stringMatching(/^info holdfast: goes on holding "k", under fence \d+$/),
  ])
  stop()
})

test('an async logger that fails becomes one warning for each event, and the work goes on', async () => {
  const warnings: string[] = []
  const note = ({ message }: Error) => warnings.push(message)
  process.on('warning', note)
  onTestFinished(() => {
    process.off('warning', note)
  })
  const { locks } = scene()
  const write = () => Promise.reject(new Error('the log server is down'))
  const stop = logLocks({ debug: write, info: write, warn: write, error: write }, { locks })
  // An unhandled rejection would fail this file.
  for (let round = 0; round < 3; round += 1) expect(await locks.withLock('k', () => round)).toBe(round)
  await until('the failures are told', async () => warnings.length > 0)
  expect(warnings.filter((text) => text.includes('`released`'))).toHaveLength(1)
  stop()
})

test.each([
  [undefined, {}, 'Expected `logger` to be a logger, such as console, got undefined.'],
  [{ error: () => {} }, {}, 'Expected `logger.debug` to be a function, got undefined.'],
  [console, { level: 'trace' }, 'Expected `level` to be one of debug, info, warn, error, got "trace".'],
  [console, { levle: 'info' }, 'Expected the options to be among `locks`, `level`, got `levle`.'],
])('it refuses %#', (logger, options, message) => {
  expect(() => logLocks(logger as never, options as never)).toThrow(expect.objectContaining({ message }))
})
