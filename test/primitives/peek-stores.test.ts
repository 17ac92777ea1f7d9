import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

test.concurrent.each(Object.entries(places))(
  'on %s a process sees who holds and who waits, and goes on once the key is free',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-peek-'))
    const place = await open(folder)
    const [one, other] = await Promise.all([
      connect(place.url, { label: 'one' }),
      connect(place.url, { label: 'other' }),
    ])
    try {
      expect(await other.peek('k')).toBeNull()
      await other.waitUntilFree('k', { wait: 0 })
      // Its key begins with the one that is looked at.
      const longer = await one.acquire('k:1')
      expect(await other.peek('k')).toBeNull()
      const held = await one.acquire('k')
      const waiting = other.acquire('k', { wait: '1m' })
      await until('one waits', async () => (await other.peek('k'))?.queue.length === 1)
      expect(await other.peek('k')).toMatchObject({
        holders: [{ id: held.id, state: 'held', owner: { pid: process.pid, label: 'one' } }],
        queue: [{ owner: { label: 'other' } }],
      })
      const free = other.waitUntilFree('k', { wait: '1m' }).then(() => one.peek('k'))
      await held.release()
      await (await waiting).release()
      expect(await free).toBeNull()
      await longer.release()
    } finally {
      await Promise.all([one.close(), other.close()])
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
