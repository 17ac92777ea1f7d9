import type { Member } from './member.ts'
import type { Fault } from './plan.ts'
import { closeLocks, join } from './workload.ts'
import type { World } from './world.ts'

/** Lets the faults of the plan happen at times that chance decides, for as long as the storm lasts. */
export function scheduleTroubles(world: World): void {
  const { plan, time } = world
  const random = world.random('troubles')
  const aims = world.random('aims')
  const ttlMs = Math.max(...plan.ttls)
  for (const fault of plan.faults) {
    const strike = troubles[fault]
    if (strike === undefined) continue
    const blows = random.between(1, plan.blows)
    for (let blow = 0; blow < blows; blow += 1) {
      const chances: Chances = {
        durationMs: random.pick([10, 100, 1000, 6000, 1.2 * ttlMs, 1.2 * ttlMs]) * (0.5 + random.next()),
        amountMs: random.pick([50, 1000, 30_000, HOUR_MS]),
        sign: random.chance(0.5) ? 1 : -1,
        whom: random.next(),
      }
      const hit = (): void => {
        if (world.calm) return
        const active = world.members.filter((member) => member.active)
        const member = active[Math.floor(chances.whom * active.length)]
        if (member !== undefined) strike(world, member, chances)
      }
      const isAimed = AIMED.has(fault) && aims.chance(0.5)
      time.startTimer(random.next() * plan.stormMs, () => {
        if (isAimed) world.granted.onNext(() => time.startTimer(AIMED_AFTER_MS, hit))
        else hit()
      })
    }
  }
}

interface Chances {
  readonly durationMs: number
  readonly amountMs: number
  readonly sign: 1 | -1
  /** Which process the fault hits, as a number from 0 to 1. */
  readonly whom: number
}

/** Faults of which some wait until a message that is a lease is under way. By chance alone they would meet it too seldom. */
const AIMED: ReadonlySet<Fault> = new Set(['data loss', 'pauses'])
/** Less than any latency. Not zero: a store does not lose its data and grant again within a microsecond. */
const AIMED_AFTER_MS = 0.1

const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000

const troubles: Readonly<Partial<Record<Fault, (world: World, member: Member, chances: Chances) => void>>> = {
  pauses(world, { process }, { durationMs }) {
    world.trace.note(process.name, 'is paused')
    process.pause()
    until(world, durationMs, process.name, 'goes on', () => process.resume())
  },
  suspends(world, member, { durationMs }) {
    const { process } = member
    world.trace.note(process.name, 'is suspended')
    process.suspend()
    member.leaps += 1
    until(world, durationMs, process.name, 'goes on', () => process.resume())
  },
  crashes(world, { process, link }, { durationMs, sign }) {
    world.trace.note(process.name, 'crashes')
    process.crash()
    // When a process dies, the kernel closes its connections. When a machine dies, they stay open.
    if (sign > 0) link?.cut()
    until(world, durationMs, 'world', 'a new process', () => join(world))
  },
  closes(world, member) {
    member.process.deliver(() => closeLocks(world, member))
    join(world)
  },
  'wall jumps'(world, member, { amountMs, sign }) {
    world.trace.note(member.name, 'wall clock jumps by', sign * amountMs)
    member.process.clock.jump(sign * amountMs)
    member.clocksJumped ||= sign > 0
    member.leaps += 1
    member.disturbedAt = world.time.monotonicMs()
  },
  cuts(world, { name, link }, { durationMs }) {
    world.trace.note(name, 'is cut off')
    link?.cut()
    until(world, durationMs, name, 'is connected again', () => link?.mend())
  },
  reconnects(world, { name, link }) {
    world.trace.note(name, 'subscribes anew')
    link?.reconnect()
  },
  'store hangs'(world, _member, { durationMs }) {
    world.trace.note('store', 'hangs')
    world.server.hang()
    until(world, durationMs, 'store', 'goes on', () => world.server.goOn())
  },
  'store restarts'(world, _member, { durationMs }) {
    world.trace.note('store', 'stops')
    world.server.stop()
    until(world, durationMs, 'store', 'starts', () => world.server.start({ keepData: true }))
  },
  'store refuses'(world, _member, { durationMs }) {
    world.trace.note('store', 'refuses')
    world.server.refuse()
    until(world, durationMs, 'store', 'answers', () => world.server.goOn())
  },
  'data loss'(world, _member, { durationMs, sign }) {
    if (sign > 0) {
      world.trace.note('store', 'forgets everything')
      world.forget()
      return
    }
    world.trace.note('store', 'stops')
    world.server.stop()
    until(world, durationMs, 'store', 'starts without its data', () => {
      world.forget()
      world.server.start({ keepData: true })
    })
  },
  'store jumps forward'(world, _member, { amountMs }) {
    world.trace.note('store', 'clock jumps by', amountMs)
    world.jumpStoreClock(amountMs)
  },
  'store jumps back'(world, _member, { amountMs }) {
    // A waiter behind a dead holder asks the more often the shorter its ttl is. An hour of that shows nothing new.
    const backMs = Math.min(amountMs, Math.min(...world.plan.ttls) < 1000 ? MINUTE_MS : HOUR_MS)
    world.trace.note('store', 'clock jumps by', -backMs)
    world.jumpStoreClock(-backMs)
  },
}

function until(world: World, durationMs: number, who: string, what: string, act: () => void): void {
  world.time.startTimer(durationMs, () => {
    if (world.calm) return
    world.trace.note(who, what)
    act()
  })
}
