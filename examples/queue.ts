// Transfers of one account happen one at a time and in order, while accounts run side by side, four at most.
// Needs: nothing.
// Run: npx tsx examples/queue.ts
import { createTaskQueue } from 'holdfast/queue'

const queue = createTaskQueue({ maxActiveTasks: 4, maxQueueSize: 10, maxRun: '5s' })
const balances = new Map<string, number>()
const history = new Map<string, number[]>()

async function add(account: string, amount: number): Promise<void> {
  const before = balances.get(account) ?? 0
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 3))
  // Side by side, another transfer would have changed the balance in between, and this would undo it.
  balances.set(account, before + amount)
  history.set(account, [...(history.get(account) ?? []), amount])
}

const transfers: Promise<void>[] = []
for (let amount = 1; amount <= 20; amount++) {
  for (const account of ['anna', 'ben', 'carla']) {
    await queue.onRoom()
    transfers.push(queue.run({ group: account }, () => add(account, amount)))
  }
}
await Promise.all(transfers)

// The answer is there at `ack`, while the function tidies up behind the scenes.
let tidiedUp: () => void = () => {}
const tidy = new Promise<void>((resolve) => {
  tidiedUp = resolve
})
const total = await queue.enqueue<number>(async ({ ack }) => {
  ack([...balances.values()].reduce((sum, balance) => sum + balance, 0))
  await new Promise((resolve) => setTimeout(resolve, 5))
  console.log('tidied up')
  tidiedUp()
})
console.log(`three accounts hold ${total} together`)
await tidy
await queue.stop()

if (total !== 630) throw new Error(`a transfer was lost: ${total}`)
for (const [account, amounts] of history) {
  console.log(`${account}: ${amounts.join(' ')}`)
  if (amounts.join() !== [...amounts].sort((a, b) => a - b).join())
    throw new Error(`${account} is out of order`)
}
