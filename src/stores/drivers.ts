import type { Driver } from './driver.ts'

/** One kind of URL, and the driver that opens it. */
export interface DriverEntry {
  /** What stands before the first colon, in lower case. */
  readonly schemes: readonly string[]
  /** A URL of this kind, for help texts. */
  readonly example: string
  /** What such a URL names, for help texts. */
  readonly summary: string
  /** Imports the code of the store, which nobody else's locks should have to load. */
  readonly load: () => Promise<{ readonly driver: Driver }>
}

/** All stores that a URL can name. To add one: a folder beside this file, a line here, and an entry in package.json. */
export const DRIVERS: readonly DriverEntry[] = [
  {
    schemes: ['memory'],
    example: 'memory:',
    summary: 'this process alone',
    load: () => import('./memory/driver.ts'),
  },
  {
    schemes: ['sqlite'],
    example: 'sqlite:./locks.db',
    summary: 'a file, for this machine alone',
    load: () => import('./sqlite/driver.ts'),
  },
  {
    schemes: ['redis', 'rediss'],
    example: 'redis://localhost:6379',
    summary: 'a Redis server; rediss:// with TLS',
    load: () => import('./redis/driver.ts'),
  },
  {
    schemes: ['redis+sentinel', 'rediss+sentinel'],
    example: 'redis+sentinel://host:26379/mymaster',
    summary: 'rediss+sentinel:// with TLS',
    load: () => import('./redis/sentinel/driver.ts'),
  },
  {
    schemes: ['redis+cluster', 'rediss+cluster'],
    example: 'redis+cluster://host:7000',
    summary: 'rediss+cluster:// with TLS',
    load: () => import('./redis/cluster/driver.ts'),
  },
  {
    schemes: ['redlock'],
    example: 'redlock:redis://a,redis://b,redis://c',
    summary: 'a majority of several Redis servers',
    load: () => import('./redlock/driver.ts'),
  },
  {
    schemes: ['postgres', 'postgresql'],
    example: 'postgres://localhost/database',
    summary: 'also postgresql://',
    load: () => import('./postgres/driver.ts'),
  },
  {
    schemes: ['etcd', 'etcds'],
    example: 'etcd://localhost:2379',
    summary: 'etcds:// with TLS',
    load: () => import('./etcd/driver.ts'),
  },
]

/** Undefined for a scheme that no store has. */
export async function driverOf(scheme: string): Promise<Driver | undefined> {
  const entry = DRIVERS.find(({ schemes }) => schemes.includes(scheme))
  return (await entry?.load())?.driver
}
