import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

test.concurrent.each(Object.entries(places))(
  'on %s an eviction is heard at once, also before the holder has read the signal',
  async (store, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-evictions-'))
    const place = await open(folder)
    // The next renewal would notice the eviction, too. It is a third of the ttl away, less a bit.
    const [ttl, withinMs] = store === 'redlock' ? ['30s', 8000] : ['10m', 60_000]
    const [one, other] = await Promise.all([connect(place.url, { ttl }), connect(place.url, { ttl })])
    try {
      // The process does not listen yet.
      const first = await one.acquire('first')
      await other.evict('first', first.id, { reason: 'stuck' })
      const { signal } = first
      await until('the first one hears', () => signal.aborted, { withinMs })
      expect(signal.reason).toMatchObject({ reason: 'evicted', evictedBecause: 'stuck' })
      // Wakes flow by now. The holder never reads this signal.
      const second = await one.acquire('second')
      await other.evict('second', second.id, { reason: 'stuck' })
      await until('the second one hears', () => second.state === 'lost', { withinMs })
    } finally {
      await Promise.all([one.close(), other.close()])
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
