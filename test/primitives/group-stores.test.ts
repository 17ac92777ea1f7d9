import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { places } from '../servers/places.ts'

test.concurrent.each(Object.entries(places))(
  'on %s the members of a group see each other, and hear at once who comes and who goes',
  async (store, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-group-'))
    const place = await open(folder)
    // A ring that nobody hears would be noticed after two thirds of this ttl, which is longer than the test may take.
    const ttl = store === 'redlock' ? '30s' : '10m'
    const [one, other] = await Promise.all([
      connect(place.url, { label: 'one', ttl }),
      connect(place.url, { label: 'other', ttl }),
    ])
    try {
      const seen = one.group('k').observe()
      const next = async () =>
        ((await seen.next()).value ?? []).map(({ owner, value }) => [owner.label, value])
      expect(await next()).toEqual([])
      const membership = await other.group('k').join({ value: 'first' })
      expect(await next()).toEqual([['other', 'first']])
      await membership.update('second')
      expect(await next()).toEqual([['other', 'second']])
      await membership.leave()
      expect(await next()).toEqual([])
      await seen.return()
    } finally {
      await Promise.all([one.close(), other.close()])
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
