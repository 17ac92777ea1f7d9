// What locks tell: a log of what happens, metrics for Prometheus, and the event of a loss.
// Needs: prom-client.
// Run: npx tsx examples/observe.ts
import { setTimeout } from 'node:timers/promises'
import { createLocks, lockEvents } from 'holdfast'
import { measureLocks } from 'holdfast/observe/prometheus'
import { sqliteStore } from 'holdfast/sqlite'
import { Registry } from 'prom-client'

const registry = new Registry()
const stopMeasuring = measureLocks({ registry })

// A log line for everything but the usual.
const log: string[] = []
for (const name of ['queued', 'timeout', 'jeopardy', 'evicted', 'lost', 'store-error'] as const) {
  lockEvents.on(name, (event) => {
    log.push(event.event)
    console.log(`${event.event} ${event.key}`)
  })
}

const locks = createLocks(sqliteStore('./locks.db'), { label: 'api-1' })
const others = createLocks(sqliteStore('./locks.db'), { label: 'api-2' })

// Somebody else has it: this one queues, and runs out of time.
await others.withLock('invoice:42', async () => {
  await locks
    .withLock('invoice:42', { wait: 100 }, () => {})
    .catch((error: Error) => console.log(error.message))
})

// An operator takes it away from its holder, who is told.
await locks
  .withLock('invoice:43', async ({ id, signal }) => {
    await others.evict('invoice:43', id, { reason: 'stuck since Monday' })
    await setTimeout(20_000, undefined, { signal })
  })
  .catch((error: Error) => console.log(error.message))

const metrics = await registry.metrics()
console.log(
  metrics
    .split('\n')
    .filter((line) => /^holdfast_(requests|losses)_total.* [1-9]/.test(line))
    .join('\n'),
)

stopMeasuring()
await locks.close()
await others.close()
if (log.join(' ') !== 'queued timeout evicted lost')
  throw new Error(`Expected four events, got ${log.join(' ')}`)
if (!/holdfast_losses_total\{.*group="invoice",reason="evicted"\} 1/.test(metrics))
  throw new Error('Expected the loss among the metrics.')
