// Transfers between accounts in both directions at once: every call holds both accounts, and none waits for ever.
// Needs: nothing.
// Run: npx tsx examples/several-keys.ts
import { createLocks } from 'holdfast'
import { memoryStore } from 'holdfast/memory'

const locks = createLocks(memoryStore())
const balances = new Map([
  ['anna', 100],
  ['ben', 100],
])

async function transfer(from: string, to: string, amount: number): Promise<void> {
  await locks.withLocks([`account:${from}`, `account:${to}`], async (leases) => {
    const before = balances.get(from) ?? 0
    await new Promise((resolve) => setTimeout(resolve, 1))
    leases.assertHeld()
    balances.set(from, before - amount)
    balances.set(to, (balances.get(to) ?? 0) + amount)
  })
}

await Promise.all(
  Array.from({ length: 20 }, (_, turn) =>
    turn % 2 === 0 ? transfer('anna', 'ben', 7) : transfer('ben', 'anna', 7),
  ),
)

await locks.close()
console.log(Object.fromEntries(balances))
if (balances.get('anna') !== 100 || balances.get('ben') !== 100) throw new Error('money was lost')
