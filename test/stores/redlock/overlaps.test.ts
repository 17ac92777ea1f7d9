import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { until } from '../../servers/until.ts'
import { newClient } from '../redis/clients.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { type Masters, startMasters } from './masters.ts'
import { gate, type SteeredLink, steeredLink } from './steered-link.ts'

let masters: Masters
beforeAll(async () => {
  masters = await startMasters(3)
})
afterAll(() => masters.close())

type Three<T> = readonly [T, T, T]

let links: Three<SteeredLink>
let store: Store
let other: Store
beforeEach(() => {
  links = masters.urls.map(steeredLink) as unknown as Three<SteeredLink>
  const settings = { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 }
  store = new RedlockStore(
    links.map(({ link }) => link),
    settings,
  )
  other = masters.store()
})
afterEach(async () => {
  for (const view of [store, other]) await view.close()
  // Two servers whose last fences are equal, and ahead of their clocks, would agree on the next fence without a claim.
  for (const server of masters.servers) await server.command('DEL', 'holdfast:{key}', 'holdfast:fence')
})

describe('questions about one waiter that overlap', () => {
  test('never give it two fences: the lease that was reported first would be lost', async () => {
    const [holder, waiter] = [ticket(), ticket()]
    await queue(holder, waiter)
    // The fence that the holder has claimed is known to the other servers, too.
    await masters.servers[2]?.command('SET', 'holdfast:fence', String((Date.now() + 60_000) * 1000))
    await other.release(releaseOf(holder))
    // The answers of the servers 1 and 2 decide the first question. Those of 2 and 3, whose fences are higher, decide
    // the second one.
    const [first, second, third] = links
    const claimedByBoth = gate()
    let [ofFirst, ofThird] = [0, 0]
    third.onReply = (script) => (script === 'renew' && ofThird++ === 0 ? slowly() : undefined)
    third.onRequest = (script) => (script === 'claim' ? claimedByBoth.open() : undefined)
    first.onReply = (script) => {
      if (script === 'renew' && ofFirst++ === 1) return slowly()
      return script === 'claim' ? Promise.race([claimedByBoth.opened, slowly()]) : undefined
    }
    second.onReply = (script) =>
      script === 'claim' ? Promise.race([claimedByBoth.opened, slowly()]) : undefined
    const answers = [...(await Promise.all([store.renew([waiter]), store.renew([waiter])]))]
    for (const link of links) link.onReply = () => {}
    answers.push(await store.renew([waiter]))
    const fences = answers
      .flat()
      .filter((answer) => answer !== undefined)
      .map(fenceOf)
    expect(fences.length).toBeGreaterThanOrEqual(2)
    expect(new Set(fences).size).toBe(1)
  })
})

test('no ticket is shown as a holder under a fence of a single server, which its lease may never have', async () => {
  const mine = ticket()
  // The third server is slow, so its fence, the highest of all, is not among those that are claimed.
  await masters.servers[2]?.command('SET', 'holdfast:fence', String((Date.now() + 60_000) * 1000))
  const [late, claimed] = [gate(), gate()]
  links[2].onReply = () => late.opened
  for (const link of links) link.onRequest = (script) => (script === 'claim' ? claimed.opened : undefined)
  const seen = async () => {
    const { rooms } = await other.inspect({ prefix: '', cursor: undefined, count: 10 })
    return rooms[0]?.holders.map(({ state, fence }) => (state === 'held' ? fence : state))
  }
  const answer = Promise.resolve(store.acquire(mine))
  expect(await until('all have let it in', async () => (await seen())?.[0])).toBe('offered')
  claimed.open()
  const fence = fenceOf(await answer)
  late.open()
  expect(await seen()).toEqual([fence])
})

test('a waiter that one more server lets in after its question was decided is woken for that', async () => {
  const [holder, waiter] = [ticket(), ticket()]
  await queue(holder, waiter)
  const alone = redisStore(newClient(masters.urls[2] as string))
  await alone.release(releaseOf(holder))
  await alone.close()
  const woken: string[] = []
  await store.listen?.((wake) => woken.push(wake.tag === 'ticket' ? wake.id : '*'))
  const held = gate()
  links[2].onReply = (script) => (script === 'renew' ? held.opened : undefined)
  expect((await store.renew([waiter]))[0]?.tag).toBe('queued')
  expect(woken).not.toContain(waiter.id)
  held.open()
  await until('it is woken', () => woken.includes(waiter.id))
})

test('a waiter that only the slowest server lets in does not make the store ask again and again', async () => {
  const [holder, waiter] = [ticket(), ticket()]
  for (const url of masters.urls.slice(0, 2)) {
    const alone = redisStore(newClient(url))
    fenceOf(await alone.acquire(holder))
    await alone.close()
  }
  let asked = 0
  links[2].onReply = (script) => {
    if (script === 'renew') asked += 1
    return new Promise((resolve) => setTimeout(resolve, 5))
  }
  await store.listen?.((wake) => {
    if (wake.tag === 'ticket') Promise.resolve(store.renew([waiter])).catch(() => {})
  })
  expect((await store.acquire(waiter)).tag).toBe('queued')
  const until500 = performance.now() + 500
  await until('it had time to be asked about often', () => performance.now() > until500)
  expect(asked).toBeLessThan(5)
})

test('a waiter that most servers have forgotten may ask again under its id, whatever was lost on the way', async () => {
  const [holder, waiter] = [ticket(), ticket()]
  await queue(holder, waiter)
  for (const server of masters.servers.slice(0, 2)) await server.command('DEL', 'holdfast:{key}')
  const last = redisStore(newClient(masters.urls[2] as string))
  await last.release(releaseOf(holder))
  await last.close()
  const told = gate()
  for (const link of links.slice(0, 2))
    link.onReply = (script) => (script === 'renew' ? told.opened : undefined)
  links[2].onReply = (script) => {
    if (script === 'renew') setImmediate(told.open)
    if (script === 'release') throw new Error('OOM the test lost this answer')
  }
  expect(await store.renew([waiter])).toEqual([{ tag: 'gone', evicted: false }])
  // `inspect` reaches all servers, behind the requests that follow from the renewal.
  for (let round = 0; round < 3; round += 1) await store.inspect({ prefix: '', cursor: undefined, count: 1 })
  const heard = gate()
  links[2].onReply = (script) => (script === 'acquire' ? heard.open() : undefined)
  for (const link of links.slice(0, 2))
    link.onReply = (script) => (script === 'acquire' ? heard.opened : undefined)
  fenceOf(await store.acquire(waiter))
})

describe('an eviction of those that wait that meets a slow release', () => {
  /** The release of the holder reaches two servers. On the third one the waiter still waits, and is evicted. */
  async function queueAndAdmit(): Promise<{ readonly waiter: Ticket; evict(): Promise<readonly string[]> }> {
    const [holder, waiter] = [ticket(), ticket()]
    await queue(holder, waiter)
    for (const url of masters.urls.slice(0, 2)) {
      const alone = redisStore(newClient(url))
      await alone.release(releaseOf(holder))
      await alone.close()
    }
    const request = { key: waiter.key, id: waiter.id, reason: 'too late', onlyIfWaiting: true }
    const evict = async (): Promise<readonly string[]> => {
      // From now on the third server is the first to answer.
      const told = gate()
      for (const link of links.slice(0, 2)) link.onReply = () => told.opened
      links[2].onReply = (script) => {
        if (script === 'renew' || script === 'acquire') setImmediate(told.open)
      }
      return other.evict(request)
    }
    return { waiter, evict }
  }

  test('takes the key from no holder', async () => {
    const { waiter, evict } = await queueAndAdmit()
    const fence = fenceOf((await store.renew([waiter]))[0])
    expect(await evict()).toEqual([])
    expect(fenceOf((await store.renew([waiter]))[0])).toBe(fence)
    expect(fenceOf(await store.acquire(waiter))).toBe(fence)
  })

  test.each(['renew', 'acquire'] as const)('takes no offer from a waiter that asks by %s', async (verb) => {
    const { waiter, evict } = await queueAndAdmit()
    expect(await evict()).toEqual([])
    const ask = async () => (verb === 'renew' ? (await store.renew([waiter]))[0] : store.acquire(waiter))
    fenceOf(await ask())
  })
})

test('a ticket that is released before a slow server could be asked about it is not let in there afterwards', async () => {
  const met = gate()
  links[2].onRequest = (script) => (script === 'identity' ? met.opened : undefined)
  let asked = 0
  links[2].onReply = (script) => {
    if (script === 'acquire' || script === 'release') asked += 1
  }
  const mine = ticket()
  fenceOf(await store.acquire(mine))
  expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
  met.open()
  await until('both have arrived there', () => asked >= 2)
  // On a busy machine the release may be repeated, and leave a tombstone.
  const alone = redisStore(newClient(masters.urls[2] as string))
  expect((await alone.inspect({ prefix: 'key', exact: true, cursor: undefined, count: 1 })).rooms).toEqual([])
  await alone.close()
})

test('a vote that is lost before it could be used does not end the attempt', async () => {
  const [mine, rival] = [ticket(), ticket()]
  // Two servers that give the same fence need no claim.
  await masters.servers[2]?.command('SET', 'holdfast:fence', String((Date.now() + 500) * 1000))
  const alone = redisStore(newClient(masters.urls[1] as string))
  fenceOf(await alone.acquire(rival))
  let claims = 0
  links[2].onRequest = async (script) => {
    if (script !== 'claim' || claims++ > 0) return
    // The third server behaves as if it had been restarted, and had its votes count at once.
    await masters.servers[2]?.command('DEL', 'holdfast:{key}')
    await alone.release(releaseOf(rival))
  }
  expect((await store.acquire(mine)).tag).toBe('held')
  expect(claims).toBeGreaterThan(1)
  await alone.close()
})

describe('an acquire whose answer one server lost', () => {
  beforeEach(() => masters.meet(store))

  test('leaves no vote there when it was refused', async () => {
    const holder = ticket()
    for (const url of masters.urls.slice(0, 2)) {
      const alone = redisStore(newClient(url))
      fenceOf(await alone.acquire(holder))
      await alone.close()
    }
    const lost = gate()
    links[2].onReply = (script) => {
      if (script !== 'acquire') return
      lost.open()
      throw new Error('OOM the test lost this answer')
    }
    expect((await store.acquire(ticket({ patienceMs: 0 }))).tag).toBe('busy')
    await lost.opened
    // A key with a lone holder is a string.
    await until('the vote was taken back', async () => {
      return (await masters.servers[2]?.command('TYPE', 'holdfast:{key}')) !== 'string'
    })
  })

  test('is without effect when it arrives there after another process has released the lease', async () => {
    const held = gate()
    links[2].onRequest = (script) => (script === 'acquire' ? held.opened : undefined)
    let answered = false
    links[2].onReply = (script) => {
      if (script === 'acquire') answered = true
    }
    const mine = ticket()
    fenceOf(await store.acquire(mine))
    expect(await other.release(releaseOf(mine))).toEqual({ was: 'held' })
    // `inspect` reaches that server, too, behind the release.
    await other.inspect({ prefix: '', cursor: undefined, count: 1 })
    held.open()
    await until('the acquire has arrived', () => answered)
    expect((await other.acquire(ticket({ patienceMs: 0 }))).tag).toBe('held')
    const { rooms } = await other.inspect({ prefix: '', cursor: undefined, count: 1 })
    expect(rooms).toMatchObject([{ queue: [] }])
  })

  test('is without effect when it arrives there after the release', async () => {
    links[2].onRequest = (script) => {
      if (script === 'acquire') throw new Error('OOM the test delays this request')
    }
    const mine = ticket()
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
    const late = redisStore(newClient(masters.urls[2] as string))
    await until('that server was told of the release', async () => {
      return Number(await masters.servers[2]?.command('EXISTS', 'holdfast:{key}')) === 1
    })
    expect(await late.acquire(mine)).toEqual({ tag: 'gone', evicted: false })
    await late.close()
  })
})

test('a store that is closed while it is asked ends every call, and no connection stays or comes back', async () => {
  const clients = async (): Promise<number> => {
    const list = String(await masters.servers[0]?.command('CLIENT', 'LIST'))
    return list.trim().split('\n').length
  }
  await other.close()
  const before = await clients()
  const busy = ticket({ key: 'busy' })
  fenceOf(await store.acquire(busy))
  for (let round = 0; round < 20; round += 1) {
    const closing = masters.store()
    await closing.listen?.(() => {})
    const calls = Array.from({ length: 10 }, (_, index) => [
      closing.acquire(ticket({ key: `key ${index % 3}`, patienceMs: 0, ttlMs: 1000 })),
      closing.acquire(ticket({ key: 'busy', ttlMs: 1000, patienceMs: 1000 })),
      closing.renew([busy]),
      closing.release({ key: `key ${index}`, id: 'nobody', cancel: false }),
    ]).flat()
    const ended = Promise.allSettled(calls)
    if (round % 2 === 0) await new Promise((resolve) => setTimeout(resolve, round / 4))
    await closing.close()
    await ended
  }
  await until('the connections are gone', async () => (await clients()) <= before + 1)
  await store.release(releaseOf(busy))
})

test('a store that is closed between two tries opens no connection for the next one', async () => {
  const tickets = ['0', '1', '2'].map((id) => ticket({ id: `${id} ${crypto.randomUUID()}`, patienceMs: 0 }))
  await masters.meet(store)
  for (const [index, url] of masters.urls.entries()) {
    const alone = redisStore(newClient(url))
    fenceOf(await alone.acquire(tickets[index] as Ticket))
    await alone.close()
  }
  const [looked, voted] = [gate(), gate()]
  links[0].onReply = (script) => {
    if (script === 'acquire') setImmediate(voted.open)
    if (script === 'votes') looked.open()
  }
  for (const link of links.slice(1))
    link.onReply = (script) => (script === 'acquire' ? voted.opened : undefined)
  const asking = Promise.allSettled([store.acquire(tickets[0] as Ticket)])
  await looked.opened
  let asked = 0
  for (const link of links)
    link.onRequest = () => {
      asked += 1
    }
  await store.close()
  await asking
  expect(asked).toBe(0)
})

/** Two servers are enough for an answer. A request that came late to the third one would be a vote after what the test does there. */
async function queue(holder: Ticket, waiter: Ticket): Promise<void> {
  await masters.meet(store, other)
  fenceOf(await other.acquire(holder))
  await untilAllKnow(holder)
  expect((await store.acquire(waiter)).tag).toBe('queued')
  await untilAllKnow(waiter)
}

async function untilAllKnow({ key, id }: Ticket): Promise<void> {
  for (const url of masters.urls) {
    const alone = redisStore(newClient(url))
    await until('the server knows the ticket', async () => {
      const { rooms } = await alone.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
      return rooms.some(({ holders, queue }) => [...holders, ...queue].some((ticket) => ticket.id === id))
    })
    await alone.close()
  }
}

function slowly(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 100))
}
