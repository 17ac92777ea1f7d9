// Loaded into every process of a torture run by NODE_OPTIONS=--import. It wraps the Redis store of the built package in a
// store with one mistake, which HOLDFAST_TEST_PLANT names. The command itself knows nothing of it.
import start from '../../dist/cli/chunks/start.js'

const { DRIVERS } = start

/** Milliseconds since 1970 by a clock that nobody sets. */
const trueTime = () => performance.timeOrigin + performance.now()

/** @type {Record<string, (store: any) => object>} */
const PLANTS = {
  /** Whoever releases, the key is free. */
  'no-owner-check': (store) => ({
    async release(request) {
      const room = await roomOf(store, request.key)
      for (const { id } of room?.holders ?? []) await store.release({ ...request, id })
      return store.release(request)
    },
  }),

  /** The client's wall clock says whether the holder has expired. */
  'clients-clock': (store) => ({
    async acquire(ticket) {
      const room = await roomOf(store, ticket.key)
      const aheadMs = Date.now() - trueTime()
      for (const { id, remainingMs } of room?.holders ?? []) {
        if (id !== ticket.id && remainingMs < aheadMs)
          await store.release({ key: ticket.key, id, cancel: false })
      }
      return store.acquire(ticket)
    },
  }),

  /** Each process counts from 1. */
  'restarting-fences': (store) => {
    let last = 0n
    const own = new Map()
    const fenced = (id, answer) => {
      if (answer?.fence === undefined) return answer
      if (!own.has(id)) own.set(id, ++last)
      return { ...answer, fence: own.get(id) }
    }
    return {
      acquire: async (ticket) => fenced(ticket.id, await store.acquire(ticket)),
      renew: async (tickets) =>
        (await store.renew(tickets)).map((answer, index) => fenced(tickets[index].id, answer)),
      listen: (onWake) => store.listen((wake) => onWake(fenced(wake.id, wake))),
    }
  },

  /** No message arrives. */
  'lost-wakes': (store) => ({ listen: () => store.listen(() => {}) }),

  /** A renewal that arrives when the lease is over takes the key back, whoever holds it by then. */
  'reviving-renewal': (store) => ({
    async renew(tickets) {
      for (const ticket of tickets) setTimeout(() => revive(store, ticket), ticket.ttlMs * 1.1).unref()
      return store.renew(tickets)
    },
  }),

  /** Nobody ever leads. */
  'no-leader': (store) => ({
    async acquire(ticket) {
      if (ticket.key.endsWith(':leader')) throw new Error('nobody leads')
      return store.acquire(ticket)
    },
  }),

  /** After a connection was lost, no request gets an answer any more. */
  'dead-connection': (store) => {
    let dead = false
    const never = new Promise(() => {})
    const guarded =
      (call) =>
      async (...given) => {
        if (dead) return never
        const late = new Promise((_, reject) => {
          setTimeout(() => reject(new Error('no answer')), 700).unref()
        })
        try {
          return await Promise.race([call.apply(store, given), late])
        } catch (error) {
          dead = true
          throw error
        }
      }
    return { acquire: guarded(store.acquire), renew: guarded(store.renew), release: guarded(store.release) }
  },
}

async function roomOf(store, key) {
  const { rooms } = await store.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
  return rooms[0]
}

async function revive(store, ticket) {
  try {
    const room = await roomOf(store, ticket.key)
    for (const { id } of room?.holders ?? []) {
      if (id === ticket.id) return
      await store.release({ key: ticket.key, id, cancel: false })
    }
    await store.acquire({ ...ticket, patienceMs: 0 })
  } catch {
    // The run is over.
  }
}

const plant = PLANTS[process.env['HOLDFAST_TEST_PLANT'] ?? '']
const redis = DRIVERS.find(({ schemes }) => schemes.includes('redis'))
if (plant !== undefined && redis !== undefined) {
  const { load } = redis
  Object.assign(redis, {
    load: async () => {
      const { driver } = await load()
      const open = async (url) => {
        const store = await driver.open(url)
        return withMistake(store, plant(store))
      }
      return { driver: { ...driver, open } }
    },
  })
}

/** The methods of the store, and those with the mistake in their place. */
function withMistake(store, mistake) {
  return new Proxy(store, {
    get(target, name) {
      if (name in mistake) return mistake[name]
      const value = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
