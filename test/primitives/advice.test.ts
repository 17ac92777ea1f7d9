import { expect, test } from 'vitest'
import { errorOf, scene } from '../engine/scene.ts'

test('a call that waits for a key of its own process is told so, and not only to wait longer', async () => {
  const { clock, locks, other } = scene()
  const held = await locks.acquire('k')
  const own = await clock.until(errorOf(locks.acquire('k', { wait: '1s' })))
  expect(own.message).toBe(
    '"k" was not free within 1000 ms (last seen with 0 ahead). These locks hold it themselves, by a lease that was not released yet. If this call runs under that lease, pass the lease along instead. Otherwise wait longer with `wait`. The key has been held for 1.0 s by ?:? (test).',
  )
  const foreign = await clock.until(errorOf(other.locks.acquire('k', { wait: '1s' })))
  expect(foreign.message).toBe(
    '"k" was not free within 1000 ms (last seen with 0 ahead). Wait longer with `wait`, or use a try… call to go on without it. The key has been held for 2.0 s by ?:? (test).',
  )
  await held.release()
})

test('work under locks that are closed is told to end before, and so is who waits', async () => {
  const { clock, locks } = scene()
  let end = () => {}
  const work = errorOf(
    locks.withLock('k', () => {
      return new Promise<void>((resolve) => {
        end = resolve
      })
    }),
  )
  await clock.advance(10)
  const waiting = errorOf(locks.acquire('k'))
  await clock.advance(10)
  await clock.until(locks.close())
  end()
  expect((await work).message).toBe(
    'These locks were closed while "k" was held. Others may hold it now: stop writing. Let all work end before close().',
  )
  expect((await waiting).message).toBe(
    'These locks were closed while "k" was waited for. Let all work end before close().',
  )
  expect((await errorOf(locks.acquire('k'))).message).toBe(
    'Expected open locks, got locks that were closed. Make new ones with createLocks(…).',
  )
})

test('a call names the option that it cannot do without, and says where the work stands', async () => {
  const { locks } = scene()
  const work = () => 1
  for (const [call, message] of [
    [
      () => locks.evict('k', undefined as never, undefined as never),
      "Expected `id` to be a ticket's id, as in evict(key, id, { reason }) or evictAll(key, { reason }), got undefined.",
    ],
    [
      () => locks.evict('k', 'id', undefined as never),
      'Expected the options to be an object with `reason`, got undefined.',
    ],
    [
      () => locks.evictAll('k', undefined as never),
      'Expected the options to be an object with `reason`, got undefined.',
    ],
    [
      () => locks.election('k').requestStepDown(undefined as never),
      'Expected the options to be an object with `reason`, got undefined.',
    ],
    [
      () => locks.once('k', work as never, undefined as never),
      'Expected the options to be an object with `remember`, got a function. The work comes last, after the options.',
    ],
    [
      () => locks.readWrite('k').read(work as never, { ttl: '5s' } as never),
      'Expected the options to be an object, got a function. The work comes last, after the options.',
    ],
  ] as const) {
    expect((await errorOf(call() as Promise<unknown>)).message).toBe(message)
  }
})
