import { expect, test } from 'vitest'
import { storeIdentity } from '../../src/cli/dashboard/store-identity.ts'

test.each([
  ['redis://cache', 'redis cache'],
  ['REDIS://user:secret@cache:6379/0?prefix=app:', 'redis cache:6379 app:'],
  ['redis://cache:6379/2', 'redis cache:6379/2'],
  ['redis+cluster://:secret@a:7000,b:7001', 'redis+cluster a:7000,b:7001'],
  ['redlock:redis://:secret@a:1,redis://b:2/3?maxTtl=5m', 'redlock a:1,b:2/3'],
  ['postgresql://user:secret@db/orders?password=secret', 'postgres db/orders'],
  ['sqlite:///var/lib/locks.db', 'sqlite /var/lib/locks.db'],
])('the store of %s is named %s in a history', (url, name) => {
  expect(storeIdentity(url)).toBe(name)
})

test.each(['postgres://user:se/cret@db/x', 'postgres://user:se?cret@db', 'postgres://db/x?password=se@cret'])(
  '%s is named by its scheme alone, as its secret may be anywhere',
  (url) => {
    expect(storeIdentity(url)).toBe('postgres')
  },
)
