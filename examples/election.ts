// Three instances of a service elect a leader. The leader goes, and the next one leads.
// Needs: nothing.
// Run: npx tsx examples/election.ts
import { createLocks } from 'holdfast'
import { sqliteStore } from 'holdfast/sqlite'

const instances = ['a', 'b', 'c'].map((name) => ({
  name,
  locks: createLocks(sqliteStore('./locks.db'), { label: name }),
  shutdown: new AbortController(),
}))

// A campaign whose signal aborts rejects with the reason of it.
const campaigns = Promise.allSettled(
  instances.map(({ name, locks, shutdown }) =>
    locks
      .election('scheduler')
      .campaign({ value: name, signal: shutdown.signal }, async ({ fence, signal }) => {
        console.log(`${name} leads under fence ${fence}`)
        // A leader works until it is asked to go.
        await new Promise((resolve) => signal.addEventListener('abort', resolve))
        console.log(`${name} has put its work down`)
      }),
  ),
)

const [first] = instances
const changes: string[] = []
for await (const leader of first?.locks.election('scheduler').observe() ?? []) {
  if (leader === null) continue
  changes.push(leader.value ?? '')
  console.log(`seen: ${leader.value} leads`)
  // Each leader is shut down as soon as it is known; the last one stays.
  if (changes.length === instances.length) break
  instances.find(({ name }) => name === leader.value)?.shutdown.abort()
}

for (const { locks } of instances) await locks.close()
await campaigns
if (new Set(changes).size !== instances.length) throw new Error(`Expected each to lead once, got ${changes}`)
