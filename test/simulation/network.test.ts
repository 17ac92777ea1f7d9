import { describe, expect, test } from 'vitest'
import type { Ticket, Wake } from '../../src/contract/store.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import {
  calmWeather,
  type SimulatedLink,
  SimulatedNetwork,
  SimulatedServer,
  SimulatedTime,
  type StoreCall,
  seededRandom,
  type Weather,
} from '../../src/testing/index.ts'

const UNAVAILABLE = expect.objectContaining({ code: 'store-unavailable' })

describe('the network', () => {
  test('carries requests and answers, and takes its time', async () => {
    const { time, link, called } = scene({ latencyMs: [10, 20] })
    const answer = outcomeOf(link.acquire(ticket('one')))
    await time.advance(9)
    expect(called).toEqual([])
    await time.advance(11)
    expect(called).toEqual(['acquire'])
    await time.advance(20)
    expect(await answer()).toMatchObject({ tag: 'held' })
  })

  test('loses a request, which then has no effect', async () => {
    const { time, link, called } = scene({ loseRequest: 1 })
    const answer = outcomeOf(link.acquire(ticket('one')))
    await time.advance(100)
    expect(await answer()).toEqual(UNAVAILABLE)
    expect(called).toEqual([])
  })

  test('loses a reply to a request that was carried out', async () => {
    const { time, link, network, called } = scene({ loseReply: 1 })
    const lost = outcomeOf(link.acquire(ticket('one')))
    await time.advance(100)
    expect(await lost()).toEqual(UNAVAILABLE)
    network.weather = calmWeather
    const again = outcomeOf(link.acquire(ticket('one')))
    await time.advance(100)
    expect([called, await again()]).toMatchObject([['acquire', 'acquire'], { tag: 'held' }])
  })

  test('says nothing at all about messages that it loses in silence', async () => {
    const { time, link } = scene({ loseReply: 1, silence: 1 })
    const answer = outcomeOf(link.release({ key: 'k', id: 'one', cancel: false }))
    await time.advance(3_600_000)
    expect(await answer()).toBe('nothing')
  })

  test('repeats a request, and its sender hears one answer', async () => {
    const { time, link, called } = scene({ duplicate: 1 })
    const answer = outcomeOf(link.acquire(ticket('one')))
    await time.advance(100)
    expect(called).toEqual(['acquire', 'acquire'])
    expect(await answer()).toMatchObject({ tag: 'held' })
  })

  test('keeps the order of a link, unless its weather lets one overtake the other', async () => {
    for (const reorder of [false, true]) {
      const orders = new Set<string>()
      for (let seed = 1; seed <= 20; seed += 1) {
        const { time, link, called } = scene({ latencyMs: [0, 50], reorder }, `${seed}`)
        void link.acquire(ticket('one'))
        void link.renew([ticket('one')])
        await time.advance(100)
        orders.add(called.join(' '))
      }
      const inOrder = 'acquire renew'
      expect([...orders].sort()).toEqual(reorder ? [inOrder, 'renew acquire'] : [inOrder])
    }
  })

  test('carries nothing while it is cut, and wakes every process when it is mended', async () => {
    const { time, link, called } = scene({})
    const wakes: Wake[] = []
    void link.listen((wake) => wakes.push(wake))
    await time.advance(10)
    link.cut()
    const answer = outcomeOf(link.acquire(ticket('one')))
    await time.advance(100)
    expect([await answer(), called, wakes]).toEqual([UNAVAILABLE, [], []])
    link.mend()
    await time.advance(100)
    expect(wakes).toEqual([{ tag: 'all' }])
  })

  test.each([
    ['is cut and mended before it is subscribed', (link: SimulatedLink) => [link.cut(), link.mend()]],
    ['connects anew before it is subscribed', (link: SimulatedLink) => [link.reconnect()]],
  ])('answers a call of `listen` also if it %s', async (_, disturb) => {
    const { time, link } = scene({})
    const wakes: Wake[] = []
    const listening = outcomeOf(link.listen((wake) => wakes.push(wake)))
    disturb(link)
    await time.advance(100)
    const stop = await listening()
    expect([typeof stop, wakes]).toEqual(['function', []])
    link.reconnect()
    await time.advance(100)
    expect(wakes).toEqual([{ tag: 'all' }])
    ;(stop as () => void)()
    link.reconnect()
    await time.advance(100)
    expect(wakes).toHaveLength(1)
  })

  test('answers a call of `listen` that is cut while the server is away, once both are back', async () => {
    const { time, link, server } = scene({})
    server.stop()
    const listening = outcomeOf(link.listen(() => {}))
    await time.advance(50)
    link.cut()
    link.mend()
    await time.advance(500)
    expect(await listening()).toBe('nothing')
    server.start({ keepData: true })
    await time.advance(500)
    expect(await listening()).toBeTypeOf('function')
  })

  test('tells only who called `listen` last, and once', async () => {
    const { time, link } = scene({})
    const told: string[] = []
    for (const name of ['first', 'second']) {
      void link.listen(() => told.push(name))
      await time.advance(10)
    }
    for (const id of ['one', 'two']) void link.acquire(ticket(id))
    await time.advance(10)
    void link.release({ key: 'k', id: 'one', cancel: false })
    await time.advance(10)
    expect(told).toEqual(['second'])
  })

  test('delivers, loses and repeats wakes', async () => {
    for (const [weather, expected] of [
      [{}, 1],
      [{ loseWake: 1 }, 0],
      [{ duplicateWake: 1 }, 2],
    ] as const) {
      const { time, link, network } = scene({})
      const wakes: Wake[] = []
      void link.listen((wake) => wakes.push(wake))
      void link.acquire(ticket('one'))
      void link.acquire(ticket('two'))
      await time.advance(10)
      network.weather = { ...calmWeather, ...weather }
      void link.release({ key: 'k', id: 'one', cancel: false })
      await time.advance(10)
      expect(wakes).toMatchObject(Array.from({ length: expected }, () => ({ tag: 'granted', id: 'two' })))
    }
  })

  test('refuses a message that is sent over a closed link', async () => {
    const { link } = scene({})
    await link.close()
    await expect(link.acquire(ticket('one'))).rejects.toEqual(UNAVAILABLE)
  })
})

describe('the server', () => {
  test('that hangs carries out everything when it goes on', async () => {
    const { time, link, server, called } = scene({})
    server.hang()
    const answer = outcomeOf(link.acquire(ticket('one')))
    await time.advance(60_000)
    expect([await answer(), called]).toEqual(['nothing', []])
    server.goOn()
    await time.advance(10)
    expect(await answer()).toMatchObject({ tag: 'held' })
  })

  test('that stops breaks open requests, refuses new ones, and comes back with its data or without', async () => {
    for (const keepData of [true, false]) {
      const { time, link, server } = scene({})
      const held = outcomeOf(link.acquire(ticket('one')))
      await time.advance(10)
      server.hang()
      const broken = outcomeOf(link.acquire(ticket('two')))
      await time.advance(10)
      server.stop()
      const refused = outcomeOf(link.acquire(ticket('three')))
      await time.advance(10)
      expect([await held(), await broken(), await refused()]).toMatchObject([
        { tag: 'held' },
        UNAVAILABLE,
        UNAVAILABLE,
      ])
      server.start({ keepData })
      const [renewal] = await settledBy(time, link.renew([ticket('one')]))
      expect(renewal?.tag).toBe(keepData ? 'held' : 'gone')
    }
  })

  test('that refuses says so, and has carried out nothing', async () => {
    const { time, link, server, called } = scene({})
    server.refuse()
    await expect(settledBy(time, link.acquire(ticket('one')))).rejects.toMatchObject({
      code: 'store-refused',
    })
    server.goOn()
    expect(called).toEqual([])
    expect(await settledBy(time, link.acquire(ticket('one')))).toMatchObject({ tag: 'held' })
  })

  test('that was away wakes every process once they are connected again', async () => {
    const { time, link, server } = scene({})
    const wakes: Wake[] = []
    void link.listen((wake) => wakes.push(wake))
    await time.advance(10)
    server.stop()
    await time.advance(1000)
    expect(wakes).toEqual([])
    server.start({ keepData: true })
    await time.advance(1000)
    expect(wakes).toEqual([{ tag: 'all' }])
  })
})

function scene(weather: Partial<Weather>, seed = '1') {
  const time = new SimulatedTime()
  const called: StoreCall['verb'][] = []
  const server = new SimulatedServer({
    open: () => memoryStore({ now: () => ({ ms: time.wallMs(), us: Math.floor(time.wallMs() * 1000) }) }),
    onCall: ({ verb }) => called.push(verb),
  })
  const network = new SimulatedNetwork({
    clock: time,
    random: seededRandom(seed),
    server,
    weather: { ...calmWeather, ...weather },
  })
  return { time, server, network, link: network.connect(), called }
}

function ticket(id: string): Ticket {
  const terms = { ttlMs: 60_000, acceptMs: 3000, patienceMs: 6000, minHoldMs: 0, lockDelayMs: 0 }
  return { key: 'k', id, units: 1, limit: 1, owner: '{}', ...terms }
}

/** The result of a promise, or `'nothing'` if it has not settled yet. */
function outcomeOf(promise: Promise<unknown>): () => Promise<unknown> {
  const settled = promise.catch((error: unknown) => error)
  return () => Promise.race([settled, new Promise((resolve) => setImmediate(() => resolve('nothing')))])
}

async function settledBy<T>(time: SimulatedTime, promise: Promise<T>): Promise<T> {
  const [outcome] = await Promise.allSettled([promise, time.advance(100)])
  if (outcome.status === 'rejected') throw outcome.reason
  return outcome.value
}
