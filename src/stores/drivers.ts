import type { Driver } from './driver.ts'

/** One kind of URL, and the driver that opens it. */
export interface DriverEntry {
  /** What stands before the first colon, in lower case. */
  readonly schemes: readonly string[]
  /** A URL of this kind, for help texts. */
  readonly example: string
  /** Imports the code of the store, which nobody else's locks should have to load. */
  readonly load: () => Promise<{ readonly driver: Driver }>
}

/** All stores that a URL can name. To add one: a folder beside this file, a line here, and an entry in package.json. */
export const DRIVERS: readonly DriverEntry[] = [
  {
    schemes: ['memory'],
    example: 'memory:',
    load: () => import('./memory/driver.ts'),
  },
  {
    schemes: ['sqlite'],
    example: 'sqlite:./locks.db',
    load: () => import('./sqlite/driver.ts'),
  },
  {
    schemes: ['redis', 'rediss'],
    example: 'redis://localhost:6379',
    load: () => import('./redis/driver.ts'),
  },
  {
    schemes: ['redis+sentinel', 'rediss+sentinel'],
    example: 'redis+sentinel://host:26379/mymaster',
    load: () => import('./redis/sentinel/driver.ts'),
  },
  {
    schemes: ['redis+cluster', 'rediss+cluster'],
    example: 'redis+cluster://host:7000',
    load: () => import('./redis/cluster/driver.ts'),
  },
  {
    schemes: ['redlock'],
    example: 'redlock:redis://a,redis://b,redis://c',
    load: () => import('./redlock/driver.ts'),
  },
  {
    schemes: ['postgres', 'postgresql'],
    example: 'postgres://localhost/database',
    load: () => import('./postgres/driver.ts'),
  },
  {
    schemes: ['etcd', 'etcds'],
    example: 'etcd://localhost:2379',
    load: () => import('./etcd/driver.ts'),
  },
]

/** Undefined for a scheme that no store has. */
export async function driverOf(scheme: string): Promise<Driver | undefined> {
  const entry = DRIVERS.find(({ schemes }) => schemes.includes(scheme))
  return (await entry?.load())?.driver
}
