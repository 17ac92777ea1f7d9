import { expect, test } from 'vitest'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { undisturbed } from '../base/measured.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { Fleet } from './fleet.ts'

test('asks the store nothing while nothing changes, except to renew', async () => {
  // On a busy machine leases run out.
  const isQuiet = ({ looks, acquires }: { looks: number; acquires: number }) => looks <= 3 && acquires < 45
  const asked = await undisturbed(isQuiet, async () => {
    const store = new ScriptedStore(memoryStore())
    const count = (what: string) => store.sent.filter(({ verb }) => verb === what).length
    const fleet = new Fleet(30)
    fleet.add('a', { ttl: '3s' }, {}, store)
    await fleet.settled([30])
    const looksBefore = count('inspect')
    await new Promise((resolve) => setTimeout(resolve, 3500))
    return { looks: count('inspect') - looksBefore, acquires: count('acquire') }
  })
  // A look when the first lease would have run out, which is after two thirds of the ttl at the earliest.
  expect(asked.looks).toBeLessThanOrEqual(3)
  expect(asked.acquires).toBeLessThan(45)
})
