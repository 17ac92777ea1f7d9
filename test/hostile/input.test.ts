import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { connect, createLocks, diagnose } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { anything, expectSound, hostileText, runs, soundly, wellFormed } from './fuzzing.ts'

describe('whatever a caller passes is taken, or refused by one line', () => {
  test('as a key', async () => {
    await using locks = createLocks(memoryStore())
    await fc.assert(
      fc.asyncProperty(anything, async (key) => {
        const lease = await soundly(() => locks.tryAcquire(key as string))
        if (lease !== undefined) {
          expect(lease?.key).toBe(key)
          await lease?.release()
        }
        await soundly(() => locks.withLocks([key as string, 'other'], { wait: 0 }, () => {}))
        await soundly(() => locks.peek(key as string))
      }),
      runs(200),
    )
  })

  test('as a duration, a count, a signal or any other option of a call', async () => {
    await using locks = createLocks(memoryStore())
    const names = fc.constantFrom(
      ...['ttl', 'wait', 'signal', 'renew', 'maxHold', 'minHold', 'lockDelay', 'reentrant', 'maxWaiting'],
      ...['storeTimeout', 'units', '__proto__', 'constructor', 'tTl'],
    )
    const options = fc.oneof(
      anything,
      fc.dictionary(fc.oneof(names, hostileText), anything, { maxKeys: 3 }),
      fc.record({
        ttl: fc.oneof(
          anything,
          fc.string(),
          fc.nat().map((ms) => `${ms}ms`),
        ),
        wait: fc.constant(0),
      }),
    )
    await fc.assert(
      fc.asyncProperty(options, async (given) => {
        const lease = await soundly(() => locks.tryAcquire('k', given as object))
        await lease?.release()
        await soundly(() => locks.semaphore('s', given as number))
        await soundly(() => locks.inspect(given as object).next())
        await soundly(() => locks.evict('k', 'id', given as { reason: string }))
      }),
      runs(300),
    )
  })

  test('as options of `createLocks`, and as labels', async () => {
    const options = fc.oneof(
      anything,
      fc.record({ label: anything }),
      fc.record({ owner: fc.oneof(anything, fc.dictionary(hostileText, hostileText)) }),
    )
    await fc.assert(
      fc.asyncProperty(options, async (given) => {
        const locks = await soundly(() => createLocks(memoryStore(), given as object))
        if (locks === undefined) return
        const lease = await soundly(() => locks.tryAcquire('k'))
        for await (const room of locks.inspect())
          expect(JSON.stringify(room.holders[0]?.owner).length).toBeLessThan(10_000)
        await lease?.release()
        await locks.close()
      }),
      runs(200),
    )
  })

  test('as the JSON of a lease', async () => {
    await using locks = createLocks(memoryStore())
    const mine = await locks.acquire('mine', { ttl: '1h' })
    const good = mine.toJSON()
    const fields = fc.constantFrom(...Object.keys(good), '__proto__')
    const jsons = fc.oneof(
      anything,
      fc.tuple(fields, anything).map(([field, value]) => ({ ...good, [field]: value })),
      fc.record({
        key: hostileText,
        id: hostileText,
        fence: fc.bigInt({ min: 0n, max: 10n ** 18n }).map(String),
      }),
      hostileText.map((id) => ({ ...good, id })),
    )
    await fc.assert(
      fc.asyncProperty(jsons, async (json) => {
        const lease = await soundly(() => locks.adopt(json as never))
        // Only the id of a lease gets hold of it.
        if (lease !== undefined) expect([lease.id, lease.key]).toEqual([good.id, good.key])
        lease?.detach()
        mine.assertHeld()
      }),
      runs(300),
    )
    await mine.release()
  })
})

describe('whatever stands in a URL is refused by one line, without what may be its password', () => {
  const schemes = [
    'redis',
    'rediss',
    'redis+sentinel',
    'redis+cluster',
    'redlock:redis',
    'postgres',
    'etcd',
    'memory',
  ]
  const address = fc.constantFrom(
    '127.0.0.1:1',
    '[::1]:1',
    '127.0.0.1:99999',
    '',
    '127.0.0.1:1,127.0.0.1:2',
    ':1',
  )
  const urls = fc.oneof(
    anything,
    hostileText,
    fc
      .tuple(fc.constantFrom(...schemes), hostileText, address, hostileText, hostileText, hostileText)
      .map(
        ([scheme, user, host, path, name, value]) =>
          `${scheme}://${encodeURIComponent(wellFormed(user))}:sEcReT@${host}/${path}?${name}=${value}`,
      ),
    fc
      .tuple(
        fc.constantFrom(...schemes),
        address,
        fc.constantFrom('prefix', 'db', 'maxTtl', 'schema', 'replicas', 'ttl'),
        hostileText,
      )
      .map(
        ([scheme, host, name, value]) =>
          `${scheme}://u:sEcReT@${host}?${name}=${encodeURIComponent(wellFormed(value))}`,
      ),
  )

  test('by `connect`', async () => {
    await fc.assert(
      fc.asyncProperty(urls, async (url) => {
        if (url === 'memory:') return
        try {
          const locks = await connect(url as string, { wait: 0, storeTimeout: '50ms' })
          const error = await locks.tryAcquire('k').then(
            (lease) => lease?.release(),
            (reason: unknown) => reason,
          )
          if (error !== undefined) expectSound(error)
          await locks.close()
        } catch (error) {
          expectSound(error)
          expect(`${(error as Error).message}`).not.toContain('sEcReT')
        }
      }),
      runs(150),
    )
  })

  test('by the doctor', async () => {
    await fc.assert(
      fc.asyncProperty(urls, async (url) => {
        const diagnosis = await soundly(() => diagnose(url as string))
        for (const { text, where = '' } of diagnosis?.findings ?? []) {
          expect(text + where).not.toContain('sEcReT')
          expect(text.length).toBeLessThan(2500)
        }
      }),
      runs(30),
    )
  })
})
