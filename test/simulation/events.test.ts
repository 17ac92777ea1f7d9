import { expect, test } from 'vitest'
import type { Clock } from '../../src/contract/clock.ts'
import type { Store } from '../../src/contract/store.ts'
import { Engine } from '../../src/engine/engine.ts'
import { lockEvents } from '../../src/engine/events.ts'
import type { LockEventName, LockEvents } from '../../src/engine/lock-events.ts'
import { playHistory, seedOf } from './history.ts'
import { holdfast } from './implementation.ts'
import { familyNames } from './plan.ts'

type Told = LockEvents[Exclude<LockEventName, 'store-error'>]
type Standing = 'asks' | 'queues' | 'holds' | 'in jeopardy' | 'over'

/** The standings in which each event may come, and the standing to which it leads. */
const GRAMMAR: Readonly<Record<Told['event'], readonly [from: readonly Standing[], to: Standing | 'same']>> =
  {
    requested: [[], 'asks'],
    queued: [['asks'], 'queues'],
    busy: [['asks'], 'over'],
    timeout: [['asks', 'queues'], 'over'],
    withdrawn: [['asks', 'queues'], 'over'],
    acquired: [['asks', 'queues'], 'holds'],
    // A process may also adopt a lease that it has handed on itself.
    adopted: [['over'], 'holds'],
    working: [['holds', 'in jeopardy'], 'same'],
    renewed: [['holds', 'in jeopardy'], 'holds'],
    jeopardy: [['holds'], 'in jeopardy'],
    evicted: [['asks', 'queues', 'holds', 'in jeopardy'], 'same'],
    lost: [['holds', 'in jeopardy'], 'over'],
    released: [['holds', 'in jeopardy'], 'over'],
    detached: [['holds', 'in jeopardy'], 'over'],
    elected: [['holds', 'in jeopardy'], 'same'],
    resigned: [['over'], 'same'],
  }
const BEGINNINGS: readonly LockEventName[] = ['requested', 'adopted']

/** Follows the standing of every ticket of one engine. */
class Grammarian {
  readonly engine: Engine
  readonly mistakes: string[] = []
  readonly standing = new Map<string, Standing>()
  readonly told = new Map<LockEventName, number>()

  constructor(engine: Engine) {
    this.engine = engine
    for (const name of lockEvents.names)
      engine.events[name].on((event: LockEvents[LockEventName]) => this.hear(event))
  }

  hear(event: LockEvents[LockEventName]): void {
    this.told.set(event.event, (this.told.get(event.event) ?? 0) + 1)
    for (const name of ['waitedMs', 'heldMs', 'remainingMs', 'tookMs', 'wokenMs'] as const) {
      const duration = (event as unknown as Record<string, unknown>)[name]
      if (typeof duration === 'number' && !(duration >= 0)) this.#mistake(event, `has ${name} ${duration}`)
    }
    if (event.event === 'store-error') return
    const [from, to] = GRAMMAR[event.event]
    const before = this.standing.get(event.id)
    const follows = before === undefined ? BEGINNINGS.includes(event.event) : from.includes(before)
    if (!follows) this.#mistake(event, `comes to one that ${before ?? 'nobody has heard of'}`)
    if (to !== 'same') this.standing.set(event.id, to)
  }

  #mistake(event: LockEvents[LockEventName], what: string): void {
    this.mistakes.push(`${event.event} of ${event.id} ${what}`)
  }
}

// Checks the order of events that docs/observe.md promises, under every kind of fault.
test.each(familyNames)('every ticket has one beginning and one end under %s', async (family) => {
  const told = new Set<string>()
  for (let number = 1; number <= 40; number += 1) {
    const listening: Grammarian[] = []
    class Listened extends Engine {
      constructor(store: Store, options: { readonly clock: Clock; readonly chance: () => number }) {
        super(store, options)
        listening.push(new Grammarian(this))
      }
    }
    const seed = seedOf(family, number)
    const { world, violation } = await playHistory(seed, { ...holdfast, Engine: Listened })
    expect(violation).toBe(undefined)
    for (const { engine, mistakes, standing, told: names } of listening) {
      expect(`${seed}: ${mistakes}`).toBe(`${seed}: `)
      for (const name of names.keys()) told.add(name)
      const { process } = world.members.find((member) => member.engine === engine) ?? {}
      if (process?.alive !== true) continue
      // All engines are closed by now.
      const open = [...standing].filter(([, where]) => where !== 'over')
      expect(`${seed}: ${open}`).toBe(`${seed}: `)
    }
  }
  expect([...told]).toEqual(expect.arrayContaining(['requested', 'queued', 'busy', 'acquired', 'released']))
  expect([...told]).toEqual(
    expect.arrayContaining(['timeout', 'withdrawn', 'renewed', 'detached', 'adopted']),
  )
})
