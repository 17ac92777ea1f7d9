import { Redis } from 'ioredis'
import { describe, expect, test, vi } from 'vitest'
import { connect, createLocks } from '../../../src/index.ts'
import Redlock, { type Client } from '../../../src/redlock-compat/index.ts'
import { errorOf } from '../../engine/scene.ts'
import { until } from '../../servers/until.ts'
import { startMasters } from './masters.ts'

// Two servers are enough for the refusal. The third one may not have told by then that it is new.
const NEW = {
  code: 'store-unavailable',
  message: expect.stringMatching(
    /^The votes of [23] of the 3 Redis servers do not count yet, and 2 have to\. .* Their votes count in [\d.]+ (?:ms|s|min), when `maxTtl` is over\. .*initRedlock\(\)/,
  ),
  retryAfterMs: expect.any(Number),
}

describe('on servers that are new', () => {
  // Each `wait` is far longer than a test may take.
  test('a call fails at once if its `wait` is too short, and says for how long', async () => {
    await using masters = await startMasters(3, { young: true })
    await using locks = createLocks(masters.store({ maxTtl: '2h' }))
    expect(await errorOf(locks.acquire('k', { wait: '1h' }))).toMatchObject({ ...NEW, key: 'k' })
    expect(await errorOf(locks.tryAcquire('k'))).toMatchObject(NEW)
    expect(await errorOf(locks.acquire('k', { wait: 0 }))).toMatchObject(NEW)
  })

  test('a call behind another one does not say that the key is taken', async () => {
    await using masters = await startMasters(3, { young: true })
    await using patient = createLocks(masters.store({ maxTtl: '2h' }))
    await using locks = createLocks(masters.store({ maxTtl: '2h' }))
    const ended = new AbortController()
    const waiting = errorOf(patient.acquire('k', { wait: '3h', signal: ended.signal }))
    await until('its votes are there', async () => {
      for await (const _ of locks.inspect()) return true
      return false
    })
    expect(await errorOf(locks.acquire('k', { wait: '1h' }))).toMatchObject(NEW)
    ended.abort(new Error('enough'))
    await waiting
  })

  test('a call waits if its `wait` is long enough, and a warning says why', async () => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    await using masters = await startMasters(3, { young: true })
    const [first = '', ...rest] = masters.urls
    await using locks = await connect(`redlock:${[first, ...rest].join()}?maxTtl=4s`, { ttl: '4s' })
    const lease = await locks.acquire('k')
    expect(lease.fence).toBeGreaterThan(0n)
    const texts = warned.mock.calls.map(([text]) => String(text))
    warned.mockRestore()
    expect(texts).toEqual([expect.stringContaining('Their votes count in')])
  })

  test('`once` waits, too', async () => {
    await using masters = await startMasters(3, { young: true })
    await using locks = createLocks(masters.store({ maxTtl: '4s' }), { ttl: '4s' })
    const outcome = await locks.once('k', { remember: '900ms' }, () => 'done')
    expect(outcome).toEqual({ ran: true, value: 'done' })
  })

  test('the drop-in for redlock fails at once, too, and says for how long', async () => {
    await using masters = await startMasters(3, { young: true })
    const clients = masters.urls.map((url) => new Redis(url) as Client)
    const redlock = new Redlock(clients, { retryCount: 100, retryDelay: 2000 })
    const error = await errorOf(redlock.acquire(['k'], 5000))
    await redlock.quit()
    expect(error).toMatchObject({
      name: 'ExecutionError',
      message: expect.stringMatching(/Their votes count in \d+ min/),
      cause: NEW,
    })
  })
})
