import { Engine } from '../src/engine/engine.ts'
import type { Lease } from '../src/engine/lease.ts'
import { Locks } from '../src/primitives/locks.ts'
import { parseSettings, TAKES } from '../src/primitives/options.ts'
import { SimulatedTime, seededRandom } from '../src/testing/index.ts'
import { SimulatedCluster, SLOTS } from './cluster.ts'

export interface CrowdResult {
  readonly waiters: number
  readonly processes: number
  /** Requests and messages for each hand-over. */
  readonly requestsPerHandOver: number
  readonly messagesPerHandOver: number
  /** While nothing happens. */
  readonly requestsPerProcessSecond: number
  /** Keys and tickets that are left when all have given up. */
  readonly left: number
}

/** Many waiters of some processes on one key: first nothing happens, then the key is handed over. */
export async function crowd(options: {
  readonly waiters: number
  readonly processes: number
  readonly handOvers: number
}): Promise<CrowdResult> {
  const { time, cluster, members } = open({ processes: options.processes, masters: 1 })
  const [first] = members
  if (first === undefined) throw new Error('Expected at least one process.')
  const settled: { lease: Lease | undefined } = { lease: undefined }
  void first.locks.acquire('crowd').then((lease) => {
    settled.lease = lease
  })
  await time.advance(100)
  const over = members.map(() => new AbortController())
  let handed = 0
  for (let waiter = 0; waiter < options.waiters; waiter += 1) {
    const place = waiter % members.length
    const { locks } = members[place] as Member
    const { signal } = over[place] as AbortController
    locks.acquire('crowd', { wait: Number.POSITIVE_INFINITY, signal }).then(
      (lease) => {
        handed += 1
        if (handed < options.handOvers) void lease.release()
        else settled.lease = lease
      },
      () => {},
    )
  }
  // Two rounds of questions, so that the first rush is over.
  await time.advance(10_000)
  const idleFrom = cluster.requestsInAll
  await time.advance(QUIET_MS)
  const requestsPerProcessSecond = (cluster.requestsInAll - idleFrom) / options.processes / (QUIET_MS / 1000)
  const from = { requests: cluster.requestsInAll, messages: cluster.messages }
  void settled.lease?.release()
  settled.lease = undefined
  while (handed < options.handOvers) await time.advance(1)
  const asked = cluster.requestsInAll - from.requests
  const messages = cluster.messages - from.messages
  for (const one of over) one.abort()
  void (settled.lease as Lease | undefined)?.release()
  await time.advance(120_000)
  return {
    waiters: options.waiters,
    processes: options.processes,
    requestsPerHandOver: round(asked / options.handOvers),
    messagesPerHandOver: round(messages / options.handOvers),
    requestsPerProcessSecond: round(requestsPerProcessSecond),
    left: leftBehind(cluster, members),
  }
}

export interface FleetResult {
  readonly processes: number
  readonly masters: number
  readonly seconds: number
  readonly movedSlots: number
  readonly handOvers: number
  readonly lostLeases: number
  readonly redirects: number
  readonly requestsPerProcessSecond: number
  /** The mean of all masters, and the busiest one. */
  readonly requestsPerMasterSecond: number
  readonly requestsAtBusiestSecond: number
  readonly left: number
}

/**
 * Processes over a cluster whose slots move: each holds a key of its own all the time, and each takes one of the shared keys now and
 * then, one for ten processes. A single master has no slots to move.
 */
export async function fleet(options: {
  readonly processes: number
  readonly masters: number
  readonly seconds: number
}): Promise<FleetResult> {
  const { time, cluster, members } = open(options)
  const random = seededRandom('fleet')
  const own: Lease[] = []
  const shared = Math.ceil(options.processes / 10)
  let handOvers = 0
  let isOver = false
  for (const [index, { locks }] of members.entries()) {
    void locks.acquire(`own:${index}`).then((lease) => own.push(lease))
    const take = (): void => {
      if (isOver) return
      void locks
        .acquire(`shared:${random.between(1, shared)}`, { wait: Number.POSITIVE_INFINITY })
        .then((lease) => {
          handOvers += 1
          time.startTimer(200, () => void lease.release())
          time.startTimer(random.between(5_000, 15_000), take)
        })
    }
    time.startTimer(random.between(0, 10_000), take)
  }
  await time.advance(15_000)
  const from = [...cluster.requests]
  const counted = { handOvers, redirects: cluster.redirects }
  const movesASecond = options.masters > 1 ? MOVES_A_SECOND : 0
  let movedSlots = 0
  for (let second = 0; second < options.seconds; second += 1) {
    for (let move = 0; move < movesASecond; move += 1) {
      cluster.move(random.between(0, SLOTS - 1))
      movedSlots += 1
    }
    await time.advance(1000)
  }
  const loads = cluster.requests.map((count, master) => (count - (from[master] ?? 0)) / options.seconds)
  const redirects = cluster.redirects - counted.redirects
  const taken = handOvers - counted.handOvers
  isOver = true
  const lostLeases = own.filter(({ state }) => state === 'lost').length
  await time.advance(60_000)
  for (const lease of own) void lease.release()
  await time.advance(60_000)
  const sum = loads.reduce((all, one) => all + one, 0)
  return {
    ...options,
    movedSlots,
    handOvers: taken,
    lostLeases,
    redirects,
    requestsPerProcessSecond: round(sum / options.processes),
    requestsPerMasterSecond: round(sum / options.masters),
    requestsAtBusiestSecond: round(Math.max(...loads)),
    left: leftBehind(cluster, members),
  }
}

export interface YearResult {
  readonly days: number
  readonly everySeconds: number
  readonly handOvers: number
  readonly newKeys: number
  /** At the end of each twelfth of the time. */
  readonly months: readonly {
    readonly month: number
    readonly rooms: number
    readonly scheduled: number
    readonly heapMiB: number
  }[]
  readonly left: number
}

/** A key that two processes want every so often, all year long. Each time they also take a key that nobody has used before. */
export async function year({
  days,
  everySeconds,
}: {
  readonly days: number
  readonly everySeconds: number
}): Promise<YearResult> {
  const { time, cluster, members } = open({ processes: 2, masters: 1 })
  let handOvers = 0
  let newKeys = 0
  const rounds = Math.floor((days * 86_400) / everySeconds)
  const months: YearResult['months'][number][] = []
  for (let round = 0; round < rounds; round += 1) {
    for (const { locks } of members)
      void locks.acquire('busy').then((lease) => {
        handOvers += 1
        time.startTimer(1000, () => void lease.release())
      })
    void members[round % 2]?.locks.acquire(`new:${round}`).then((lease) => {
      newKeys += 1
      void lease.release()
    })
    await time.advance(everySeconds * 1000)
    if (Math.floor(((round + 1) * 12) / rounds) === months.length + 1) {
      globalThis.gc?.()
      months.push({
        month: months.length + 1,
        rooms: cluster.rooms(),
        scheduled: members.reduce((sum, { engine }) => sum + engine.counts.waiting + engine.counts.leases, 0),
        heapMiB: Math.round((process.memoryUsage().heapUsed / 2 ** 20) * 10) / 10,
      })
    }
  }
  return { days, everySeconds, handOvers, newKeys, months, left: leftBehind(cluster, members) }
}

interface Member {
  readonly engine: Engine
  readonly locks: Locks
}

function open({ processes, masters }: { readonly processes: number; readonly masters: number }): {
  readonly time: SimulatedTime
  readonly cluster: SimulatedCluster
  readonly members: readonly Member[]
} {
  const time = new SimulatedTime()
  const cluster = new SimulatedCluster(time, masters)
  const random = seededRandom('size')
  const members = Array.from({ length: processes }, (_, index) => {
    const engine = new Engine(cluster.connect(), { clock: time, chance: () => random.next() })
    let tickets = 0
    const nextId = (): string => {
      tickets += 1
      return `${index}-${tickets}`
    }
    return {
      engine,
      locks: new Locks({ engine, owner: `p${index}`, nextId }, parseSettings({}, TAKES.locks)),
    }
  })
  return { time, cluster, members }
}

/** Keys with a holder or waiter in the stores, and tickets in the processes. */
function leftBehind(cluster: SimulatedCluster, members: readonly Member[]): number {
  return members.reduce(
    (sum, { engine: { counts } }) => sum + counts.waiting + counts.leases,
    cluster.rooms(),
  )
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000
}

const QUIET_MS = 20_000
const MOVES_A_SECOND = 2
