import { expect, test } from 'vitest'
import { errorOf, scene } from '../engine/scene.ts'

test.each(['released', 'closed'] as const)(
  'an extend that hangs while the lease is %s says so',
  async (how) => {
    const { clock, locks, store } = scene()
    const lease = await locks.acquire('k', { ttl: '10s' })
    store.next('renew', 'lose request')
    const extending = errorOf(lease.extend())
    await clock.until(how === 'released' ? lease.release() : locks.close())
    expect(await clock.until(extending)).toMatchObject({ code: how === 'released' ? 'lease-lost' : 'closed' })
  },
)

test.each(['extend', 'adopt'] as const)(
  'a StoreError of %s names the key, as that of acquire does',
  async (how) => {
    const { clock, locks, store, other } = scene()
    const lease = await locks.acquire('k', { ttl: '10s', renew: false })
    store.always('lose request', ['renew'])
    const failing = how === 'extend' ? lease.extend() : locks.adopt(lease.toJSON())
    const error = await clock.until(errorOf(failing))
    await lease.release()
    await other.locks.close()
    expect(error).toMatchObject({ code: 'store-unavailable', key: 'k' })
  },
)
