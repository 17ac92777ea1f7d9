import { expect, test } from 'vitest'
import type { RenewAnswer, Ticket } from '../../src/contract/store.ts'
import { type RenewTogether, renewBesideDamage } from '../../src/stores/damaged-rooms.ts'
import { ticket } from './tickets.ts'

const DAMAGE = new Error('damaged')
const HELD: RenewAnswer = { tag: 'held', fence: 1n }

/** A store in which the rooms of some keys are damaged, and the sizes of the requests to it. */
function storeWith(damaged: readonly string[], error: Error = DAMAGE) {
  const sizes: number[] = []
  const together: RenewTogether = {
    async ask(tickets) {
      sizes.push(tickets.length)
      if (tickets.some(({ key }) => damaged.includes(key))) throw error
      return tickets.map(() => HELD)
    },
    isDamage: (failure) => failure === DAMAGE,
  }
  return { together, sizes }
}

function ticketsOf(count: number): readonly Ticket[] {
  return Array.from({ length: count }, (_, index) => ticket({ key: `key-${index}` }))
}

test('a damaged room leaves its own place empty, wherever it is, and costs few requests', async () => {
  for (const at of [0, 1, 499, 500, 998, 999]) {
    const { together, sizes } = storeWith([`key-${at}`])
    const answers = await renewBesideDamage(together, ticketsOf(1000))
    expect(answers).toHaveLength(1000)
    expect([...answers].map((answer) => answer?.tag)).toEqual(
      Array.from({ length: 1000 }, (_, index) => (index === at ? undefined : 'held')),
    )
    expect(sizes.length).toBeLessThanOrEqual(21)
  }
})

test('an error without damage, and one about a single ticket, reach the caller after one request', async () => {
  const away = storeWith(['key-3'], new Error('away'))
  await expect(renewBesideDamage(away.together, ticketsOf(10))).rejects.toThrow('away')
  expect(away.sizes).toEqual([10])
  const single = storeWith(['key-0'])
  await expect(renewBesideDamage(single.together, ticketsOf(1))).rejects.toBe(DAMAGE)
  expect(single.sizes).toEqual([1])
})

test('many damaged rooms, or an outage meanwhile, cost no ticket the answer that it has', async () => {
  const tickets = ticketsOf(512)
  const damaged = Array.from({ length: 32 }, (_, index) => `key-${index * 16 + 15}`)
  const { together, sizes } = storeWith(damaged)
  const answers = await renewBesideDamage(together, tickets)
  expect(sizes.length).toBeLessThan(250)
  const answered = [...answers].filter((answer) => answer !== undefined)
  expect(answered.length).toBeGreaterThan(200)
  let asked = 0
  const failing = storeWith(['key-100'])
  const ask = async (some: readonly Ticket[]) => {
    asked += 1
    if (asked > 2) throw new Error('away')
    return failing.together.ask(some)
  }
  const beforeOutage = await renewBesideDamage({ ...failing.together, ask }, tickets)
  expect([...beforeOutage].map((answer) => answer?.tag)).toEqual(
    tickets.map((_, index) => (index < 256 ? undefined : 'held')),
  )
})

test('if every room is damaged, the caller gets the error after a hundred requests', async () => {
  const tickets = ticketsOf(500)
  const { together, sizes } = storeWith(tickets.map(({ key }) => key))
  await expect(renewBesideDamage(together, tickets)).rejects.toBe(DAMAGE)
  expect(sizes).toHaveLength(101)
})

test('if no ticket has an answer, the caller gets the error', async () => {
  const { together, sizes } = storeWith(['key-0', 'key-1'])
  await expect(renewBesideDamage(together, ticketsOf(2))).rejects.toBe(DAMAGE)
  expect(sizes).toEqual([2, 1, 1])
})

test('a store that answers or throws in the same tick does so here, too', async () => {
  const answers = [HELD, HELD]
  const sound = renewBesideDamage({ ask: () => answers, isDamage: () => true }, ticketsOf(2))
  expect(sound).toBe(answers)
  const away = () => renewBesideDamage({ ask: thrower, isDamage: () => false }, ticketsOf(2))
  expect(away).toThrow(DAMAGE)
  function thrower(): never {
    throw DAMAGE
  }
})
