import { InvalidArgumentError } from '../../errors.ts'
import type { Driver } from '../driver.ts'
import { lookAtSqlite } from './looking.ts'
import { openSqlite } from './open.ts'

export const driver: Driver = {
  async open(url, { readOnly }) {
    return readOnly ? lookAtSqlite(pathOf(url)) : openSqlite(pathOf(url))
  },
  async diagnose(url) {
    const { diagnoseSqlite } = await import('./doctor.ts')
    return diagnoseSqlite(pathOf(url))
  },
}

/** The text behind `sqlite:` is a path as the file system has it, with an empty host in front of it or none. */
function pathOf(url: string): string {
  const path = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
  if (path === '' || path.startsWith('//')) {
    throw new InvalidArgumentError(
      'Expected a `sqlite:` url to name a file, as in sqlite:./locks.db or sqlite:///var/lib/locks.db, got no path.',
    )
  }
  return path
}
