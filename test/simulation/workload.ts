import type { Lease, LeaseJson } from '../../src/engine/lease.ts'
import type { CallbackOptions, WaitOptions } from '../../src/primitives/options.ts'
import type { LeaseSet } from '../../src/primitives/together.ts'
import type { Random } from '../../src/testing/random.ts'
import { type Bounds, call, OwnError } from './call.ts'
import type { Member } from './member.ts'
import type { World } from './world.ts'

/** A new process joins, and its actors begin to work. */
export function join(world: World): void {
  const member = world.start()
  for (let actor = 1; actor <= world.plan.actors; actor += 1) {
    const name = `${member.name}/${actor}`
    world.begin(member, name, () => act(world, member, name))
  }
}

/** Closes the locks of a process while its actors are at work. */
export function closeLocks(world: World, member: Member): void {
  member.closed = true
  void call(world, member, 'close', { mostMs: CLOSE_MS }, () => member.locks.close())
}

/** Does what applications do, and also what they should not do: many small programs, until the storm is over. */
async function act(world: World, member: Member, name: string): Promise<void> {
  const actor = new Actor(world, member, world.random(name))
  for (let deeds = 0; deeds < MOST_DEEDS && !world.calm && member.active; deeds += 1)
    await actor.doSomething()
}

/** `close` ends the leases, then the pending releases, then the store: one attempt each. */
const CLOSE_MS = 6000
const MOST_DEEDS = 40
/** A release resolves after one attempt, also when the store is silent. */
const RELEASE_BOUND: Bounds = { mostMs: 2000 }

type Ending = Pick<WaitOptions, 'renew' | 'maxHold'>

class Actor {
  readonly #world: World
  readonly #member: Member
  readonly #random: Random

  constructor(world: World, member: Member, random: Random) {
    this.#world = world
    this.#member = member
    this.#random = random
  }

  async doSomething(): Promise<void> {
    await this.#member.sleep(this.#random.pick([0, 1, 10, 100, 500]))
    const { key, usage, permits } = this.#random.pick(this.#world.plan.keys)
    const kind = usage === 'mixed' ? this.#random.pick(['mutex', 'read-write', 'semaphore'] as const) : usage
    if (kind === 'read-write') return this.#readOrWrite(key)
    if (kind === 'semaphore') return this.#takePermits(key, permits)
    const deed = this.#random.pick([
      () => this.#lock(key),
      () => this.#lock(key),
      () => this.#lock(key),
      () => this.#acquire(key),
      () => this.#acquire(key),
      () => this.#try(key),
      () => this.#together(),
      () => this.#handOver(key),
      () => this.#nested(key),
      () => this.#evict(key),
    ])
    return deed()
  }

  async #lock(key: string): Promise<void> {
    const { locks } = this.#member
    const options = this.#options()
    let lease: Lease | undefined
    const done = await this.#call(`withLock ${key}`, {}, () =>
      locks.withLock(key, options, async (given) => {
        lease = given
        await this.#work(given, options)
        if (this.#random.chance(0.1)) throw new OwnError()
        return 'done'
      }),
    )
    if (lease?.state === 'held' || lease?.state === 'jeopardy')
      this.#world.report('left behind', `${lease.id} is still held after withLock`)
    if (done !== undefined && lease?.state === 'lost')
      this.#world.report('error', `withLock succeeded, and ${lease.id} was lost`)
  }

  async #acquire(key: string): Promise<void> {
    const options = this.#options()
    const lease = await this.#call(`acquire ${key}`, waitBounds(options), () =>
      this.#member.locks.acquire(key, options),
    )
    if (lease !== undefined) await this.#workAndRelease(lease, options)
  }

  async #try(key: string): Promise<void> {
    const { wait: _wait, ...options } = this.#options()
    const { locks } = this.#member
    if (this.#random.chance(0.5)) {
      await this.#call(`tryWithLock ${key}`, {}, () =>
        locks.tryWithLock(key, options, (lease) => this.#work(lease, options)),
      )
      return
    }
    const lease = await this.#call(`tryAcquire ${key}`, { mostMs: ANSWER_MS }, () =>
      locks.tryAcquire(key, options),
    )
    if (lease !== undefined && lease !== null) await this.#workAndRelease(lease, options)
  }

  async #readOrWrite(key: string): Promise<void> {
    const lock = this.#member.locks.readWrite(key)
    const options = this.#options()
    const write = this.#random.chance(0.4)
    if (this.#random.chance(0.5)) {
      const work = (lease: Lease): Promise<void> => this.#work(lease, options)
      await this.#call(`${write ? 'write' : 'read'} ${key}`, {}, () =>
        write ? lock.write(options, work) : lock.read(options, work),
      )
      return
    }
    const lease = await this.#call(`acquire${write ? 'Write' : 'Read'} ${key}`, waitBounds(options), () =>
      write ? lock.acquireWrite(options) : lock.acquireRead(options),
    )
    if (lease !== undefined) await this.#workAndRelease(lease, options)
  }

  async #takePermits(key: string, permits: number): Promise<void> {
    // One actor in ten uses another number of permits, as during a deploy.
    const believed = this.#random.chance(0.1) ? permits + 1 : permits
    const semaphore = this.#member.locks.semaphore(key, believed)
    const options = { ...this.#options(), units: this.#random.between(1, believed) }
    const lease = await this.#call(`acquire ${options.units} of ${key}`, waitBounds(options), () =>
      semaphore.acquire(options),
    )
    if (lease !== undefined) await this.#workAndRelease(lease, options)
  }

  async #together(): Promise<void> {
    const { locks } = this.#member
    const keys = this.#world.plan.keys.filter(({ usage }) => usage === 'mutex').map(({ key }) => key)
    if (keys.length === 0) return
    const { minHold: _minHold, ...options } = this.#options()
    const work = async (leases: LeaseSet): Promise<void> => {
      for (const lease of leases.leases) this.#observe(lease, options)
      await this.#member.sleep(this.#holdMs())
      for (const lease of leases.leases) this.#ends(lease)
    }
    await this.#call(`withLocks ${keys.join(' ')}`, {}, async () => {
      if (this.#random.chance(0.7)) await locks.withLocks(keys.toReversed(), options, work)
      else await locks.tryWithLocks(keys, { ttl: options.ttl }, work)
    })
  }

  /** Hands a lease over to another process. If that process does not adopt the lease, it goes on nowhere. */
  async #handOver(key: string): Promise<void> {
    const { locks } = this.#member
    const options = this.#options()
    const lease = await this.#call(`acquire ${key}`, waitBounds(options), () => locks.acquire(key, options))
    if (lease === undefined) return
    this.#observe(lease, options)
    this.#ends(lease)
    const json = await this.#call(`detach ${key}`, {}, async () => lease.detach())
    if (json === undefined) return
    this.#world.handedOn.add(json.id)
    const heirs = this.#world.members.filter((member) => member.active)
    if (heirs.length === 0) return
    const heir = this.#random.pick(heirs)
    const actor = new Actor(this.#world, heir, this.#world.random(`heir of ${json.id}`))
    heir.process.deliver(() => this.#world.begin(heir, `continues ${json.id}`, () => actor.#adopt(json)))
  }

  async #adopt(json: LeaseJson): Promise<void> {
    const { locks } = this.#member
    const lease = await this.#call(`adopt ${json.key}`, { mostMs: ATTEMPT_MS }, () => locks.adopt(json))
    if (lease !== undefined) await this.#workAndRelease(lease, {})
  }

  /** Takes a second key, or the same key again, while it holds the first one. */
  async #nested(key: string): Promise<void> {
    const { locks } = this.#member
    const inner = this.#random.pick(this.#world.plan.keys).key
    const options = { ...this.#options(), wait: this.#random.pick([100, 2000]) }
    const reentrant = this.#random.chance(0.5)
    await this.#call(`withLock ${key} and ${inner}`, {}, () =>
      locks.withLock(key, options, async (lease) => {
        this.#observe(lease, options)
        await this.#member.sleep(this.#random.pick([0, 5, 50]))
        try {
          await locks.withLock(inner, { ...options, reentrant }, (innerLease) =>
            innerLease === lease ? undefined : this.#work(innerLease, options),
          )
        } finally {
          this.#ends(lease)
        }
      }),
    )
  }

  async #evict(key: string): Promise<void> {
    if (!this.#random.chance(0.3)) return
    if (this.#random.chance(0.5)) return this.#evictGranted()
    const room = this.#world.rooms().find((one) => one.key === key)
    const ids = [...(room?.holders ?? []), ...(room?.queue ?? [])].map(({ id }) => id)
    if (ids.length === 0) return
    const id = this.#random.chance(0.2) ? undefined : this.#random.pick(ids)
    const { locks } = this.#member
    const options = { reason: 'chance' }
    await this.#call(`evict ${key} ${id ?? 'all'}`, { mostMs: ADMINISTRATION_MS }, () =>
      id === undefined ? locks.evictAll(key, options) : locks.evict(key, id, options),
    )
  }

  /** Evicts a ticket while the message with its lease is under way. The request and the message race each other. */
  async #evictGranted(): Promise<void> {
    const granted = await this.#nextGranted(1000)
    if (granted === undefined || this.#world.calm) return
    const { key, id } = granted
    await this.#call(`evict ${key} ${id}`, { mostMs: ADMINISTRATION_MS }, () =>
      this.#member.locks.evict(key, id, { reason: 'chance' }),
    )
  }

  async #nextGranted(mostMs: number): Promise<{ readonly key: string; readonly id: string } | undefined> {
    const { process } = this.#member
    const sent = new Promise<{ readonly key: string; readonly id: string }>((resolve) => {
      this.#world.granted.onNext((key, id) => process.deliver(() => resolve({ key, id })))
    })
    return (await Promise.race([sent, this.#member.sleep(mostMs)])) ?? undefined
  }

  async #workAndRelease(lease: Lease, options: Ending): Promise<void> {
    try {
      await this.#work(lease, options)
    } catch (error) {
      if (!(error instanceof OwnError)) this.#world.report('error', `Work failed: ${error}`)
    }
    const release = (): Promise<void> => lease.release()
    const done = this.#call(`release ${lease.id}`, RELEASE_BOUND, release)
    if (this.#random.chance(0.2)) await this.#call(`release ${lease.id} again`, RELEASE_BOUND, release)
    await done
    if (lease.state === 'held' || lease.state === 'jeopardy')
      this.#world.report('left behind', `${lease.id} is ${lease.state} after its release`)
  }

  /**
   * Holds for a while: listens or not, writes, extends, releases early. Ends early when it learns that the lease is
   * over.
   */
  async #work(lease: Lease, options: Ending): Promise<void> {
    this.#observe(lease, options)
    try {
      await this.#use(lease)
    } finally {
      this.#ends(lease)
    }
  }

  async #use(lease: Lease): Promise<void> {
    // This holder does not check its lease, so its signal has to tell it.
    if (this.#random.chance(0.3)) return this.#member.sleep(this.#holdMs())
    const steps = this.#random.between(0, 3)
    for (let step = 0; step < steps; step += 1) {
      await this.#member.sleep(this.#holdMs() / steps)
      if (lease.state === 'lost' || lease.state === 'released') return
      if (lease.toJSON().limit === 1) this.#write(lease)
      if (this.#random.chance(0.15)) {
        const ttl = this.#random.pick([...this.#world.plan.ttls, 100, 400, 2000, 20_000])
        await this.#call(`extend ${lease.id} ${ttl}`, {}, () => lease.extend(ttl))
      }
    }
    if (!this.#random.chance(0.05)) return
    this.#ends(lease)
    await this.#call(`release ${lease.id} early`, RELEASE_BOUND, () => lease.release())
  }

  /** Checks the lease, and writes only after any delay. So the fence has to decide. */
  #write(lease: Lease): void {
    try {
      lease.assertHeld()
    } catch {
      return
    }
    const delayMs = this.#random.pick([0, 0, 10, 1000])
    this.#world.time.startTimer(delayMs, () => {
      const accepted = this.#world.register.write(lease)
      this.#world.trace.note(this.#member.name, accepted ? 'wrote' : 'was refused', lease.key, lease.fence)
      this.#world.count(accepted ? 'register written' : 'register refused')
    })
  }

  #observe(lease: Lease, { renew, maxHold }: Ending): void {
    this.#world.watch(this.#member, lease, { lasting: renew !== false && maxHold === undefined })
    if (this.#random.chance(0.6)) this.#world.leaseWitness.listens(lease)
  }

  #ends(lease: Lease): void {
    this.#world.leaseWitness.ends(lease)
  }

  #options(): WaitOptions & { readonly ttl: number } & Pick<CallbackOptions, 'wait'> {
    const { plan } = this.#world
    const random = this.#random
    const controller = random.chance(0.2) ? new AbortController() : undefined
    if (controller !== undefined) this.#abortSome(controller)
    return {
      ttl: random.pick(plan.ttls),
      wait: random.pick(plan.waits),
      renew: !random.chance(0.15),
      maxHold: random.chance(0.1) ? random.pick([100, 2000]) : undefined,
      minHold: random.chance(0.1) ? random.pick([20, 500]) : undefined,
      lockDelay: random.chance(0.1) ? random.pick([50, 1000]) : undefined,
      signal: controller?.signal,
    }
  }

  /** Aborts after a while, or in the very turn in which the process hears from the store, or hears that it has the key. */
  #abortSome(controller: AbortController): void {
    const abort = (): void => controller.abort(new OwnError())
    const when = this.#random.pick(['next turn', 'next turn', 'granted', 'later', 'later'] as const)
    if (when === 'next turn') this.#member.process.afterNext(abort)
    else if (when === 'granted') this.#world.granted.onHeard(this.#member, abort)
    else this.#member.process.clock.startTimer(this.#random.pick([0, 1, 3, 20, 300]), abort)
  }

  #holdMs(): number {
    const ttl = this.#random.pick(this.#world.plan.ttls)
    return Math.min(
      MOST_HOLD_MS,
      this.#random.pick([0, 1, 5, 20, 100, ttl * 0.6, ttl * 0.6, ttl * 1.7, ttl * 1.7]),
    )
  }

  #call<T>(label: string, bounds: Bounds, ask: () => Promise<T>): Promise<T | undefined> {
    return call(this.#world, this.#member, label, bounds, ask)
  }
}

const MOST_HOLD_MS = 12_000
/** How long a call may take that waits for the store, and not for the key. */
const ATTEMPT_MS = 2000
const ANSWER_MS = 5000
const SHORT_ANSWER_MS = 500
const ADMINISTRATION_MS = 10_000

/**
 * The limits of an acquire of a single key. It ends neither earlier nor later than its wait, but the store has time to
 * answer.
 */
function waitBounds(options: { readonly wait?: unknown }): Bounds {
  const waitMs = Number(options.wait)
  return { timeoutMs: waitMs, mostMs: waitMs === 0 ? ANSWER_MS : Math.max(waitMs, SHORT_ANSWER_MS) }
}
