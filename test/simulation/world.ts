import type { RenewAnswer, RoomView } from '../../src/contract/store.ts'
import type { Lease } from '../../src/engine/lease.ts'
import { type Random, seededRandom } from '../../src/testing/random.ts'
import { SimulatedClock } from '../../src/testing/simulated-clock.ts'
import { calmWeather, SimulatedNetwork } from '../../src/testing/simulated-network.ts'
import { SimulatedProcess } from '../../src/testing/simulated-process.ts'
import { SimulatedServer, type StoreAnswer, type StoreCall } from '../../src/testing/simulated-server.ts'
import { SimulatedTime } from '../../src/testing/simulated-time.ts'
import { CalmWitness } from './calm-witness.ts'
import { DirectLink } from './direct-link.ts'
import { GrantedMessages } from './granted-messages.ts'
import type { Implementation } from './implementation.ts'
import { LeaseWitness } from './lease-witness.ts'
import { Member } from './member.ts'
import type { Plan } from './plan.ts'
import { FencedRegister } from './register.ts'
import { roomsOf, StoreWitness } from './store-witness.ts'
import { Trace } from './trace.ts'
import { type Rule, Violation } from './violation.ts'

/** The processes, a store, the network between them, and the witnesses. */
export class World {
  readonly plan: Plan
  readonly time: SimulatedTime = new SimulatedTime()
  readonly trace: Trace
  readonly server: SimulatedServer
  readonly network: SimulatedNetwork
  readonly storeClock: SimulatedClock
  readonly storeWitness: StoreWitness
  readonly leaseWitness: LeaseWitness
  readonly register: FencedRegister
  readonly calmWitness: CalmWitness
  readonly granted: GrantedMessages
  /** All processes that ever were, in the order in which they joined. */
  readonly members: Member[] = []
  /** Whether the storm is over: no fault happens any more, and no actor begins anything new. */
  calm = false
  /** How often each event has happened. */
  readonly counts = new Map<string, number>()
  /** How many calls there were so far. */
  calls = 0
  /** By how much the store's clock was set back in all. The store keeps everything longer by this time. */
  setBackMs = 0
  /** Ids of tickets that their holders handed on. The store cannot tell that from a crash. */
  readonly handedOn = new Set<string>()
  readonly random: (purpose: string) => Random
  readonly #implementation: Implementation
  #reaches: (id: string) => boolean = () => false
  #violation: Violation | undefined
  #burst = { since: 0, events: 0 }
  #rooms: readonly RoomView[] | undefined

  constructor(seed: string, plan: Plan, implementation: Implementation) {
    this.plan = plan
    this.random = (purpose) => seededRandom(`${seed}/${purpose}`)
    this.#implementation = implementation
    this.trace = new Trace(() => this.time.monotonicMs())
    const report = (rule: Rule, message: string): void => this.report(rule, message)
    this.storeClock = new SimulatedClock({ time: this.time, rate: this.#rate(this.random('store clock')) })
    this.storeWitness = new StoreWitness({
      report,
      mayComeLate: (id) => plan.faults.has('duplicates') || this.handedOn.has(id),
      storeMs: () => this.#storeTime().ms,
      reaches: (id) => this.#reaches(id),
    })
    this.leaseWitness = new LeaseWitness({
      report,
      now: () => this.time.monotonicMs(),
      storeRate: this.storeClock.rate,
      store: this.storeWitness,
      prompt: plan.faults.size === 0,
    })
    this.calmWitness = new CalmWitness({ report, now: () => this.time.monotonicMs(), members: this.members })
    this.register = new FencedRegister(this.storeWitness, report)
    this.granted = new GrantedMessages({
      now: () => this.time.monotonicMs(),
      count: (what) => this.count(what),
    })
    this.server = new SimulatedServer({
      open: (reaches) => {
        this.#reaches = reaches
        const store = implementation.memoryStore({ now: () => this.#storeTime(), reaches })
        this.granted.follow(store)
        return store
      },
      onCall: (call, answer) => {
        this.trace.note('store', call.verb, summary(call), '→', answer)
        this.#countCall(call, answer)
        this.granted.called(call)
        if (call.verb === 'evict') this.granted.evicted(answer as readonly string[])
        this.storeWitness.called(this.server.store, call, answer)
      },
    })
    this.network = new SimulatedNetwork({
      clock: this.time,
      random: this.random('network'),
      server: this.server,
      weather: plan.weather,
    })
  }

  /** Begins work that a process does on its own. Only the end of the history waits for it. */
  begin(member: Member, name: string, work: () => Promise<void>): void {
    member.pending.add(name)
    void work()
      .catch((error: unknown) => this.report('error', `${name} of ${member.name} failed: ${error}`))
      .finally(() => member.pending.delete(name))
  }

  /** A new process joins. */
  start(): Member {
    const name = `p${this.members.length + 1}`
    const random = this.random(name)
    const late = this.plan.faults.has('late timers')
    const process = new SimulatedProcess({
      name,
      time: this.time,
      rate: this.#rate(random),
      aheadMs: random.between(-5000, 5000),
      lateness: () => (late ? random.next() * 8 : 0) - (random.chance(0.2) ? 1 : 0),
      timersFirst: () => random.chance(0.5),
    })
    let arrivedAt = 0
    const deliver = (act: () => void): void => {
      const at = this.time.monotonicMs()
      process.deliver(() => {
        arrivedAt = at
        act()
      })
    }
    const link = this.plan.direct ? undefined : this.network.connect(deliver)
    const { Engine, Locks, parseSettings, TAKES } = this.#implementation
    const store = link ?? new DirectLink(this.network, deliver)
    const engine = new Engine(store, {
      clock: process.clock,
      chance: () => random.next(),
    })
    let tickets = 0
    const nextId = (): string => {
      tickets += 1
      return `${name}-${tickets}`
    }
    const locks = new Locks({ engine, owner: name, nextId }, parseSettings({}, TAKES.locks))
    const member = new Member({ process, link, engine, locks })
    this.granted.attend(member, store, () => arrivedAt)
    this.members.push(member)
    return member
  }

  /** Lets time pass. After every event all witnesses check. Rejects with the first violation. */
  async advance(durationMs: number): Promise<void> {
    await this.time.advance(durationMs, () => this.#look())
    this.#look()
  }

  report(rule: Rule, message: string): void {
    this.#violation ??= new Violation(rule, message)
  }

  /** `lasting`: nothing but a fault can end the lease before its release. */
  watch(member: Member, lease: Lease, options: { readonly lasting: boolean }): void {
    this.trace.note(member.name, 'has', lease.key, lease.id, lease.fence, lease.remainingMs)
    this.leaseWitness.watch(member, lease, { lasting: options.lasting && this.plan.faults.size === 0 })
  }

  /** Counts an event, to show what the histories have covered. */
  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1)
  }

  rooms(): readonly RoomView[] {
    this.#rooms ??= roomsOf(this.server.store)
    return this.#rooms
  }

  /** Lets the store lose everything. */
  forget(): void {
    this.storeWitness.dataLost()
    this.granted.dataLost()
    this.server.forget()
  }

  jumpStoreClock(byMs: number): void {
    this.storeWitness.clockJumped(byMs)
    this.granted.clockJumped()
    this.storeClock.jump(byMs)
    if (byMs < 0) this.setBackMs -= byMs
  }

  /** Ends all faults. */
  settle(): void {
    this.trace.note('world', 'calm')
    this.calm = true
    this.network.weather = calmWeather
    this.server.goOn()
    if (!this.server.isUp) this.server.start({ keepData: true })
    for (const { link, process } of this.members) {
      link?.mend()
      process.resume()
    }
  }

  #look(): void {
    this.#rooms = undefined
    this.granted.turnOver()
    this.#judgeRest()
    for (const member of this.members) {
      if (!member.process.upToDate) member.disturbedAt = this.time.monotonicMs()
    }
    this.leaseWitness.check(() => this.rooms())
    if (this.plan.faults.size === 0) this.calmWitness.check(this.rooms())
    if (this.#violation !== undefined) throw this.#violation
  }

  /** A process that sets a timer of 0 ms again and again never gets on. Reports that. */
  #judgeRest(): void {
    const now = this.time.monotonicMs()
    if (now > this.#burst.since + BURST_MS) this.#burst = { since: now, events: 0 }
    this.#burst.events += 1
    if (this.#burst.events > MOST_EVENTS)
      this.report('rest', `More than ${MOST_EVENTS} events within ${BURST_MS} ms`)
  }

  #countCall(call: StoreCall, answer: StoreAnswer): void {
    if (call.verb === 'inspect') return
    const answers = call.verb === 'renew' ? (answer as readonly RenewAnswer[]) : [answer]
    for (const one of answers) {
      const said = 'tag' in one ? one.tag : 'was' in one ? one.was : 'done'
      this.count(`${call.verb} ${said}`)
    }
  }

  #storeTime(): { ms: number; us: number } {
    const ms = this.storeClock.wallMs()
    return { ms, us: Math.floor(ms * 1000) }
  }

  /** The rate of a clock. Any two clocks differ by 0.5 % at most. */
  #rate(random: Random): number {
    if (!this.plan.faults.has('clock rates')) return 1
    return 1 + random.pick([-1, 0, 1, 2 * random.next() - 1]) * MOST_DRIFT
  }
}

const MOST_DRIFT = 0.0025
const BURST_MS = 10
const MOST_EVENTS = 5000

function summary(call: {
  readonly ticket?: { readonly key: string; readonly id: string; readonly ttlMs: number }
  readonly tickets?: readonly { readonly id: string; readonly ttlMs: number }[]
  readonly request?: unknown
}): unknown {
  if (call.ticket !== undefined) return [call.ticket.key, call.ticket.id, call.ticket.ttlMs]
  if (call.tickets !== undefined) return call.tickets.map(({ id, ttlMs }) => [id, ttlMs])
  return call.request
}
