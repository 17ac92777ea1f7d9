// Code that is written for `navigator.locks` of a browser, between two processes' worth of clients at one store.
// Needs: nothing.
// Run: npx tsx examples/web-locks.ts
import { connect } from 'holdfast'
import { webLocks } from 'holdfast/web-locks'

const store = process.env['STORE'] ?? 'sqlite:./locks.db'
const [here, there] = [await connect(store, { label: 'here' }), await connect(store, { label: 'there' })]

const written: string[] = []
await Promise.all(
  [here, there].map((locks, index) =>
    webLocks(locks).request('journal', async (lock) => {
      written.push(`${index} enters ${lock.name}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
      written.push(`${index} leaves ${lock.name}`)
    }),
  ),
)
console.log(written.join('\n'))

const busy = await webLocks(here).request('journal', () =>
  webLocks(there).request('journal', { ifAvailable: true }, (lock) => lock === null),
)
console.log(busy ? 'busy, as it should be' : 'free')

await Promise.all([here.close(), there.close()])
if (!busy || written[0]?.[0] !== written[1]?.[0]) throw new Error(`Two were inside at once: ${written}`)
