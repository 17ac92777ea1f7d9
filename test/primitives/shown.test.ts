import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { scene } from '../engine/scene.ts'

test('console.log of a lease shows this lease, and none of the others of the process', async () => {
  const { locks } = scene()
  const leases = await Promise.all(['tenant-1', 'tenant-2', 'tenant-3'].map((key) => locks.acquire(key)))
  const shown = inspect(leases[1], { depth: Number.POSITIVE_INFINITY })
  for (const part of ['tenant-2', String(leases[1]?.id), `${leases[1]?.fence}n`, "'held'", 'remainingMs'])
    expect(shown).toContain(part)
  expect(shown).not.toMatch(/tenant-[13]/)
  expect(shown.length).toBeLessThan(300)
  await Promise.all(leases.map((lease) => lease.release()))
})

test('console.log of several keys held together shows these and no others', async () => {
  const { locks } = scene()
  const [others, set] = [await locks.acquire('tenant-1'), await locks.acquireAll(['tenant-2', 'tenant-3'])]
  const shown = inspect(set, { depth: Number.POSITIVE_INFINITY })
  for (const key of set.keys) expect(shown).toContain(key)
  expect(shown).not.toContain('tenant-1')
  await Promise.all([others.release(), set.release()])
})
