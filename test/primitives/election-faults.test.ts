import { getEventListeners } from 'node:events'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Leader, Leadership } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene, startProcess } from '../engine/scene.ts'
import { Letter, ScriptedStore } from '../engine/scripted-store.ts'
import { campaign, Office, observer } from './office.ts'

const unreachable = () => expect.unreachable()

/** Collects the warnings of the process until the test ends. */
function warnings(): string[] {
  const seen: string[] = []
  const note = ({ stack = '' }: Error) => seen.push(stack)
  process.on('warning', note)
  onTestFinished(() => {
    process.off('warning', note)
  })
  return seen
}

describe('a campaign', () => {
  test('does not begin its work when its signal aborts in the tick in which it is elected', async () => {
    const { locks } = realScene()
    const end = new AbortController()
    let begun = 0
    const running = locks.election('k').campaign({ signal: end.signal }, () => {
      begun += 1
      return new Promise(() => {})
    })
    end.abort(new Error('no more'))
    expect(await errorOf(running)).toMatchObject({ message: 'no more' })
    expect(begun).toBe(0)
  })

  test('does not take work for done that blocked the event loop past the deadline, and campaigns again', async () => {
    const { locks, clock } = scene()
    const fences: bigint[] = []
    const running = locks.election('k').campaign(({ fence }) => {
      fences.push(fence)
      if (fences.length === 1) clock.block(31_000)
      return `term ${fences.length}`
    })
    expect(await clock.until(running)).toBe('term 2')
    expect(fences[1]).toBeGreaterThan(fences[0] ?? 0n)
    await clock.advance(40_000)
  })

  test('survives work that never settles: it holds the key no longer than it may, and ends with nothing', async () => {
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office, { ttl: '5s', grace: '1s' })
    await settled()
    expect(await other.locks.election('k').requestStepDown({ reason: 'deploy' })).toBe(true)
    const rival = new Office()
    const rivals = campaign(other.locks.election('k'), rival)
    await clock.untilTrue(() => rival.inside === 1, { withinMs: 7000 })
    await clock.advance(60_000)
    expect(await outcomeOf(running.over)).toBe('pending')
    running.end()
    rivals.end()
    await clock.advance(60_000)
    office.finish('')
    expect(await errorOf(clock.until(running.over))).toMatchObject({ message: 'the test is over' })
  })

  test('whose grace is over is not asked again, and neither is the next leader in its place', async () => {
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office, { ttl: '5s', grace: '1s' })
    await settled()
    expect(await other.locks.election('k').requestStepDown({ reason: 'deploy' })).toBe(true)
    const rival = new Office()
    const rivals = campaign(other.locks.election('k'), rival)
    await clock.advance(1500)
    expect(rival.inside).toBe(0)
    expect(await clock.until(other.locks.election('k').requestStepDown({ reason: 'once more' }))).toBe(true)
    await clock.untilTrue(() => rival.inside === 1, { withinMs: 7000 })
    await clock.advance(2000)
    expect(rival.term.signal.aborted).toBe(false)
    office.finish('')
    running.end()
    rivals.end()
    await clock.advance(60_000)
  })

  test.each(['waits', 'leads'])(
    'ends while it %s when the lease is lost whose signal it was given',
    async (what) => {
      const { locks, other, clock } = scene()
      const lease = await locks.acquire('outer')
      const holder = what === 'waits' ? await other.locks.acquire('k') : undefined
      const running = locks.election('k').campaign({ signal: lease.signal }, new Office().work)
      running.catch(() => {})
      await clock.advance(1000)
      await other.locks.evictAll('outer', { reason: 'test' })
      expect(await errorOf(clock.until(running, { withinMs: 1000 }))).toBe(lease.signal.reason)
      await holder?.release()
      await clock.advance(10_000)
    },
  )

  test('many share one signal without a warning, while they wait and while they lead', async () => {
    const seen = warnings()
    const { locks, clock } = scene()
    const end = new AbortController()
    const offices = Array.from({ length: 30 }, () => new Office())
    const running = offices.map((office, index) =>
      locks.election(`k${index % 20}`).campaign({ signal: end.signal }, office.work),
    )
    const watching = Array.from({ length: 20 }, async () => {
      for await (const _ of locks.election('k1').observe({ signal: end.signal }));
    })
    await clock.advance(5000)
    expect(offices.filter(({ inside }) => inside === 1)).toHaveLength(20)
    end.abort(new Error('enough'))
    const errors = await clock.until(Promise.all(running.map(errorOf)))
    expect(errors.every(({ message }) => message === 'enough')).toBe(true)
    await clock.until(Promise.all(watching))
    await clock.advance(10_000)
    expect(seen).toEqual([])
  })

  test('keeps the process alive while it leads, also by work that only waits for its signal', async () => {
    const { locks, clock } = scene()
    const running = campaign(locks.election('k'), new Office())
    await settled()
    expect(clock.timers.keepingAlive).toBeGreaterThan(0)
    await clock.advance(120_000)
    expect(clock.timers.keepingAlive).toBeGreaterThan(0)
    running.end()
    expect(await errorOf(clock.until(running.over))).toMatchObject({ message: 'the test is over' })
    await settled()
    expect(clock.timers.keepingAlive).toBe(0)
    await clock.advance(40_000)
  })
})

describe('a leader that steps down', () => {
  test('hears when its lease is lost in the middle of it', async () => {
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office)
    await settled()
    const { term } = office
    await other.locks.election('k').requestStepDown({ reason: 'deploy' })
    await clock.untilTrue(() => term.signal.aborted)
    expect(term.lost.aborted).toBe(false)
    await other.locks.evictAll('k', { reason: 'by force' })
    await clock.untilTrue(() => term.lost.aborted, { withinMs: 100 })
    expect(term.lost.reason).toMatchObject({ code: 'lease-lost', evictedBecause: 'by force' })
    expect(term.signal.reason).toMatchObject({ code: 'step-down' })
    office.finish('')
    await clock.untilTrue(() => office.terms.length === 2)
    running.end()
    await settled()
    office.finish('')
    await clock.advance(10_000)
  })

  test('hears when its time to settle is over, and that it leads no more', async () => {
    const { locks, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office, { ttl: '5s', grace: '2s' })
    await settled()
    running.end()
    await clock.advance(1900)
    expect(office.term.lost.aborted).toBe(false)
    await clock.advance(200)
    expect(office.term.lost.reason).toMatchObject({ code: 'lease-lost', key: 'k' })
    expect(office.term.lost.reason.message).toContain('2000 ms')
    expect(office.term.remainingMs).toBe(0)
    expect(() => office.term.assertHeld()).toThrow(office.term.lost.reason)
    office.finish('')
    await clock.advance(10_000)
  })

  test.each<[string, (term: Leadership) => unknown]>([
    ['the loss itself', ({ lost }) => lost.reason],
    ['an error that the loss has caused', ({ lost }) => new Error('undone', { cause: lost.reason })],
  ])('campaigns again when its work ends with %s', async (_, errorFor) => {
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office)
    await settled()
    const { term } = office
    await other.locks.election('k').requestStepDown({ reason: 'deploy' })
    await clock.untilTrue(() => term.signal.aborted)
    await other.locks.evictAll('k', { reason: 'by force' })
    await clock.untilTrue(() => term.lost.aborted)
    office.fail(errorFor(term))
    await clock.untilTrue(() => office.terms.length === 2)
    running.end()
    await settled()
    office.finish('')
    await clock.advance(10_000)
  })

  test('is not waited for longer than it leads: resign() ends with the hard stop', async () => {
    const { locks, clock } = scene()
    const office = new Office(false)
    const election = locks.election('k')
    const running = campaign(election, office, { ttl: '5s', grace: '2s' })
    await settled()
    const resigned = election.resign()
    await clock.advance(1900)
    expect(await outcomeOf(resigned)).toBe('pending')
    await clock.advance(200)
    expect(await outcomeOf(resigned)).toEqual({ value: undefined })
    running.end()
    office.finish('')
    await clock.advance(10_000)
  })

  test('is nobody when it has lost already: resign() does not wait for work that goes on', async () => {
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const election = locks.election('k')
    const running = campaign(election, office)
    await settled()
    await other.locks.evictAll('k', { reason: 'test' })
    await clock.untilTrue(() => office.term.lost.aborted)
    expect(await outcomeOf(election.resign())).toEqual({ value: undefined })
    running.end()
    office.finish('')
    await clock.advance(10_000)
  })

  test('may resign in its own work, which resign() then does not wait for', async () => {
    const { locks, clock } = scene()
    const election = locks.election('k')
    let terms = 0
    const running = election.campaign(async () => {
      terms += 1
      if (terms === 2) return 'done'
      await election.resign()
      return 'not yet'
    })
    expect(await clock.until(running)).toBe('done')
    await clock.advance(10_000)
  })

  test('is found in the moment of its election, before it has announced itself', async () => {
    const { locks, other, clock, store } = scene()
    const office = new Office()
    store.next('acquire', 'answer', 'fail')
    const running = campaign(locks.election('k'), office)
    await settled()
    const first = office.term
    const asked = other.locks.election('k').requestStepDown({ reason: 'deploy' })
    expect(await clock.until(asked)).toBe(true)
    await clock.untilTrue(() => first.signal.aborted, { withinMs: 100 })
    running.end()
    await clock.advance(10_000)
  })

  test('is asked although the mark of the leader before is still there, and its own is not yet', async () => {
    const { store, other, clock } = scene()
    /** A process whose requests of one kind for the mark are slow. */
    const slow = (verb: 'acquire' | 'release') => {
      const letter = new Letter()
      const network = new ScriptedStore(store.real)
      const send = network[verb].bind(network) as (request: { key: string }) => Promise<unknown>
      Object.assign(network, {
        [verb]: (request: { key: string }) =>
          request.key === 'k#leader' ? letter.send(() => send(request)) : send(request),
      })
      const office = new Office()
      return { letter, office, running: campaign(startProcess(network, clock).locks.election('k'), office) }
    }
    const first = slow('release')
    await clock.untilTrue(() => first.office.inside === 1)
    const next = slow('acquire')
    await clock.advance(100)
    first.office.finish('')
    await clock.untilTrue(() => next.office.inside === 1)
    const { term } = next.office
    const asked = other.locks.election('k').requestStepDown({ reason: 'deploy' })
    await clock.advance(50)
    next.letter.arrive().reply()
    expect(await clock.until(asked)).toBe(true)
    await clock.untilTrue(() => term.signal.aborted, { withinMs: 100 })
    first.letter.arrive().reply()
    next.running.end()
    await clock.advance(10_000)
  })

  test('may be asked over and over while its work settles', async () => {
    const seen = warnings()
    const { locks, other, clock } = scene()
    const office = new Office(false)
    const running = campaign(locks.election('k'), office, { grace: '10m' })
    await settled()
    for (let round = 0; round < 30; round += 1) {
      expect(await clock.until(other.locks.election('k').requestStepDown({ reason: 'deploy' }))).toBe(true)
      await clock.advance(100)
    }
    office.term.assertHeld()
    running.end()
    office.finish('')
    await clock.advance(10_000)
    expect(seen).toEqual([])
  })

  test('ends with the locks that are closed meanwhile', async () => {
    const { locks, clock } = scene()
    const office = new Office(false)
    const election = locks.election('k')
    const running = campaign(election, office)
    await settled()
    const resigned = election.resign()
    await clock.until(locks.close())
    await clock.until(resigned)
    expect(office.term.lost.reason).toMatchObject({ code: 'closed' })
    office.finish('')
    expect(await errorOf(clock.until(running.over))).toMatchObject({ code: 'closed' })
    await clock.advance(40_000)
  })
})

describe('observing', () => {
  test('hears of leaders that lead for a moment, also after there was none', async () => {
    const here = scene()
    const { locks, other, clock } = here
    const { seen } = observer(here, other.locks.election('k'))
    await clock.advance(2500)
    const fences: (bigint | undefined)[] = [undefined]
    for (let round = 0; round < 5; round += 1) {
      const office = new Office()
      const running = campaign(locks.election('k'), office)
      await clock.advance(100)
      fences.push(office.term.fence, undefined)
      office.finish('')
      await running.over
      await clock.advance(round * 500)
    }
    expect(seen.map((leader) => leader?.fence)).toEqual(fences)
  })

  test('looks again within seconds when a look gets no reply', async () => {
    const here = scene()
    const { locks, other, clock, store } = here
    const { seen } = observer(here, locks.election('k'))
    const first = campaign(other.locks.election('k'), new Office(), { value: 'first' })
    await clock.untilTrue(() => seen.at(-1)?.value === 'first')
    await clock.advance(3000)
    const next = campaign(other.locks.election('k'), new Office(), { value: 'next' })
    await clock.advance(100)
    store.next('inspect', 'lose reply')
    first.end()
    await clock.untilTrue(() => seen.at(-1)?.value === 'next', { withinMs: 4000 })
    expect(store.count('inspect')).toBeGreaterThan(2)
    next.end()
    await clock.advance(5000)
  })

  test('waits longer for each reply of a slow store', async () => {
    const here = scene()
    const { locks, clock, store } = here
    const letter = new Letter()
    store.next('inspect', 'lose request', 'lose request', letter)
    store.always('lose request', ['inspect'])
    const { seen } = observer(here, locks.election('k'))
    await clock.untilTrue(() => store.count('inspect') === 3)
    await clock.advance(7000)
    letter.arrive().reply()
    await clock.untilTrue(() => seen.length === 1, { withinMs: 100 })
    expect(seen).toEqual([null])
    store.always('answer')
    await clock.advance(20_000)
  })

  test('goes on where the leader cannot announce itself, and where no observer may wait', async () => {
    const here = scene()
    const { locks, other, clock, store } = here
    const busy = await other.locks.acquire('k#vacant')
    const { seen } = observer(here, other.locks.election('k'))
    await clock.advance(2500)
    store.always('fail', ['evict'])
    const running = campaign(locks.election('k'), new Office())
    await clock.advance(1500)
    expect(seen.map((leader) => leader === null)).toEqual([true, false])
    await busy.release()
    running.end()
    await clock.advance(1500)
    const next = campaign(locks.election('k'), new Office())
    await clock.advance(1500)
    expect(seen.map((leader) => leader === null)).toEqual([true, false, true, false])
    next.end()
    await clock.advance(5000)
  })

  test('holds on to nothing of the leaders that were, however long it goes on', async () => {
    const here = scene()
    const { locks, other, clock } = here
    const end = new AbortController()
    const { seen } = observer(here, other.locks.election('k'))
    await clock.advance(100)
    const footprint = () => [
      ...Object.values(other.engine.counts),
      clock.timers.running,
      getEventListeners(end.signal, 'abort').length,
    ]
    const sizes: number[][] = []
    for (let round = 0; round < 200; round += 1) {
      const office = new Office()
      const running = locks.election('k').campaign({ signal: end.signal, ttl: '1s' }, office.work)
      await clock.advance(50)
      if (round % 20 === 10) sizes.push(footprint())
      office.finish('')
      await running
      if (round % 2 === 0) await clock.advance(2000)
    }
    expect(seen.filter((leader) => leader !== null)).toHaveLength(200)
    // After 190 leaders the memory is as much as after 10 of them.
    for (const [index, most] of (sizes[0] ?? []).entries()) {
      expect(sizes.at(-1)?.[index]).toBeLessThanOrEqual(most + 1)
    }
  })

  test('is over, as everything is, once the locks are closed', async () => {
    const { locks, clock } = scene()
    const election = locks.election('k')
    await clock.until(locks.close())
    expect(await errorOf(clock.until(election.observe().next()))).toMatchObject({ code: 'closed' })
    expect(await errorOf(clock.until(election.campaign(unreachable)))).toMatchObject({ code: 'closed' })
    expect(await errorOf(clock.until(election.leader()))).toMatchObject({ code: 'closed' })
    const asked = election.requestStepDown({ reason: 'test' })
    expect(await errorOf(clock.until(asked))).toMatchObject({ code: 'closed' })
    await clock.until(election.resign())
  })

  test('ends at once by its signal, whatever its reader has not taken yet', async () => {
    const { locks, other, clock } = scene()
    const end = new AbortController()
    const changes = other.locks.election('k').observe({ signal: end.signal })
    await clock.until(changes.next())
    for (let round = 0; round < 3; round += 1) {
      const running = campaign(locks.election('k'), new Office())
      await clock.advance(3000)
      running.end()
      await clock.advance(3000)
    }
    expect(await clock.until(changes.next())).toMatchObject({ value: { owner: { label: 'test' } } })
    end.abort()
    expect(await clock.until(changes.next())).toEqual({ done: true, value: undefined })
  })

  test('is told by a hundred observers alike, of every leader', async () => {
    const here = scene()
    const { locks, other, clock } = here
    const watching = Array.from({ length: 100 }, () => observer(here, other.locks.election('k')))
    await clock.advance(2000)
    const offices = Array.from({ length: 5 }, () => new Office())
    const running = offices.map((office) => campaign(locks.election('k'), office))
    for (const office of offices) {
      await clock.untilTrue(() => office.inside === 1)
      await clock.advance(2000)
      office.finish('')
    }
    await clock.advance(3000)
    const fences = [null, ...offices.map(({ term }) => term.fence), null]
    for (const { seen } of watching)
      expect(seen.map((leader: Leader | null) => leader?.fence ?? null)).toEqual(fences)
    await Promise.all(running.map(({ over }) => over))
  })
})
