import assert from 'node:assert/strict'
import { Redis } from 'ioredis'
import type { Store } from '../../../src/contract/store.ts'
import { boundStore } from '../bound-store.ts'

/**
 * The same store, but every inspection of its rooms begins with a check of the Redis keys. The store's answers alone do
 * not show that a room vanishes too early, or never, or that a sum is wrong that matters only to the next holder.
 */
export function soundRooms(store: Store, url: string, nowMs: () => number): Store {
  const redis = new Redis(url)
  let fenceBefore: number | undefined
  return {
    ...boundStore(store),
    close: () => {
      redis.disconnect()
      return store.close()
    },
    async inspect(request) {
      const [keys, last] = await Promise.all([
        redis.keys(`holdfast:{${request.prefix}*`),
        redis.get('holdfast:fence'),
      ])
      const [fence, now] = [Number(last), nowMs()]
      // One script gives at most this many. If the clock was set back, a script that fails half-way leaves the last
      // fence far higher.
      const most = Math.max(fenceBefore ?? fence, now * 1000 + 999) + 1000
      assert.ok(fence >= (fenceBefore ?? 0) && fence < most, `the last fence ${fence} follows ${fenceBefore}`)
      fenceBefore = fence
      // A clock client keeps the expiry of a lone holder in a key beside it, `<room>:until`.
      const rooms = keys.filter((key) => key.endsWith('}'))
      await Promise.all(rooms.map((key) => checkKey(redis, key, { fence, now })))
      return store.inspect(request)
    },
  }
}

async function checkKey(redis: Redis, key: string, time: Omit<Context, 'pttl'>): Promise<void> {
  const [pttl, until, type] = await Promise.all([redis.pttl(key), redis.get(`${key}:until`), redis.type(key)])
  const ofLone = until === null ? pttl : Number(until) - time.now
  // A clock client deletes a key whose time is over in the next script about it.
  if (until !== null && ofLone <= 0) return
  if (type === 'string') checkLone((await redis.get(key)) ?? '', { ...time, pttl: ofLone })
  else checkRoom(await redis.zrange(key, 0, -1), { ...time, pttl })
}

interface Context {
  readonly pttl: number
  readonly fence: number
  readonly now: number
}

/** The longest ttl of the histories. */
const LONGEST_TTL_MS = 240_000

function checkLone(content: string, { pttl, fence }: Context): void {
  const [, number, delay] = /^2 t[^\0]+\0(\d{16}) \d{16} \d+ \d+ \d+ (\d+) \d+ \S+ ./s.exec(content) ?? []
  assert.equal(delay, '0', content)
  assert.ok(Number(number) <= fence, `a fence beyond the last one: ${content}`)
  assert.ok(pttl > 0 && pttl <= LONGEST_TTL_MS, `kept for ${pttl} ms: ${content}`)
}

function checkRoom(members: readonly string[], { pttl, fence, now }: Context): void {
  const all = JSON.stringify(members)
  const tickets = members.filter((member) => /^[eq]/.test(member)).map(parse)
  const isOnly = tickets.filter(({ state }) => state !== 'w').length === 1
  const indices = tickets.filter(({ state }) => state === 'w' || !isOnly).map(({ index }) => index)
  const graves = members.filter((member) => /^t[^\0]*\0x/.test(member))
  const graveEnds = graves.map((grave) => {
    const [, id, until] = /^t([^\0]*)\0x(\d{13}) [ge]/.exec(grave) ?? []
    return `y${until}${id}`
  })
  const found = members.filter((member) => /^y|^t[^\0]*\0[^x]/.test(member))
  assert.deepEqual(found, [...indices, ...graveEnds].sort(), `indices and entries differ: ${all}`)
  const [summary = '', ...others] = members.filter((member) => !/^[eqrty]/.test(member))
  assert.deepEqual(others, [], `more than a summary: ${all}`)
  assert.match(summary, /^2(?: \d+){7}$/)
  const [, holders, units, limit, smallest, closed = 0, kept = 0, arrivals = 0] = summary
    .split(' ')
    .map(Number)
  checkGroups(members, { kept, all })
  const holding = tickets.filter(({ state }) => state !== 'w')
  const least = Math.min(Number.MAX_SAFE_INTEGER, ...holding.map((ticket) => ticket.limit))
  assert.equal(holders, holding.length, all)
  assert.equal(
    units,
    holding.reduce((sum, ticket) => sum + ticket.units, 0),
    all,
  )
  assert.equal(limit, least, all)
  assert.equal(smallest, holding.filter((ticket) => ticket.limit === least).length, all)
  for (const { state, number, till, hold, delay } of tickets) {
    if (state === 'w')
      assert.ok(number <= arrivals && till <= kept && hold > 1e13 && Math.floor(hold / 10) <= till, all)
    else assert.ok(number <= fence && till + delay <= kept && (hold === 0 || hold > 1e12), all)
  }
  for (const end of graveEnds) assert.ok(Number(end.slice(1, 14)) <= kept, all)
  assert.ok(closed <= kept, all)
  // The clock that the scripts see may be ahead of the clock by which Redis expires sorted sets, and never behind it.
  assert.ok(pttl > 0 && pttl + 10_000 > kept - now, `kept for ${pttl} ms only: ${all}`)
}

interface Kept {
  readonly index: string
  readonly state: string
  readonly number: number
  readonly till: number
  readonly hold: number
  readonly units: number
  readonly limit: number
  readonly delay: number
}

function parse(entry: string): Kept {
  const [, section, place, id, state = '', other, hold, units, limit, delay] =
    /^([eq])(\d{13})([^\0]*)\0([howl]) (\d+) \d{16} (\d+) (\d+) (\d+) \d+ (\d+) \S+ ./s.exec(entry) ?? []
  assert.ok(id !== undefined, `a ticket in a form of its own: ${JSON.stringify(entry)}`)
  assert.equal(section === 'q', state === 'w', entry)
  return {
    index: `t${id}\0${section}${place}`,
    state,
    number: Number(state === 'w' ? place : other),
    till: Number(state === 'w' ? other : place),
    hold: Number(hold),
    units: Number(units),
    limit: Number(limit),
    delay: Number(delay),
  }
}

/** Checks that each group has as many waiters as its entry says, and that each waiter of a group has such an entry. */
function checkGroups(members: readonly string[], { kept, all }: { kept: number; all: string }): void {
  const waiters = members.flatMap((member) => {
    const [, group] = /^q[^\0]*\0w \d+ \d+ \d+ \d+ \d+ \d+ \d+ \d+ ([^ /]+\/\S+) /s.exec(member) ?? []
    return group === undefined ? [] : [group]
  })
  const groups = members.filter((member) => member.startsWith('r'))
  for (const group of groups) {
    const [, name, till, count] = /^r([^\0]*)\0(\d{13}) \d{14} (\d+) [01]$/.exec(group) ?? []
    assert.equal(waiters.filter((each) => each === name).length, Number(count), all)
    assert.ok(Number(count) > 0 && Number(till) <= kept, all)
  }
  assert.equal(new Set(waiters).size, groups.length, all)
}
