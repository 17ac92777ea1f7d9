import { X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContextOptions } from 'node:tls'
import { notInstalled } from '../base/packages.ts'
import { isDecodable } from '../base/text.ts'
import { InvalidArgumentError } from '../errors.ts'
import { packagePg, packagePostgres } from './client-packages.ts'
import type { PostgresPool } from './connections.ts'

/**
 * A client for the database that a URL names, of the package `pg`, or else `postgres`, whichever is installed. It is never
 * connected: only its configuration is used. No message contains the URL, because it may contain a password.
 *
 * @throws {InvalidArgumentError} when the URL or a file that it names is not what it should be, or neither package is
 * installed.
 */
export async function clientOfUrl(url: unknown): Promise<PostgresPool> {
  checkUrl(url)
  const pg = await packagePg()
  if (pg !== undefined) return pgClient(pg.Client, url)
  const postgres = await packagePostgres()
  if (postgres !== undefined) return postgres(url)
  throw notInstalled('pg', 'postgres')
}

function checkUrl(url: unknown): asserts url is string {
  const expected = 'Expected `url` to be like postgres://user:password@host:5432/database'
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined) throw new InvalidArgumentError(`${expected}, got something that is not a URL.`)
  const { protocol, username, password, pathname } = parsed
  if (protocol !== 'postgres:' && protocol !== 'postgresql:') {
    throw new InvalidArgumentError(`${expected}, got one that begins with ${protocol}`)
  }
  if (!isDecodable(username + password + pathname)) {
    throw new InvalidArgumentError(`${expected}, got one that has a % that is not written as %25.`)
  }
}

type PgClientClass = typeof import('pg').Client

/** The package reads the files of certificates here, and does not check what is in them. */
function pgClient(Client: PgClientClass, url: string): PostgresPool {
  const client = made(Client, url)
  const { ssl } = client as unknown as { readonly ssl: SecureContextOptions | boolean }
  if (typeof ssl === 'object') checkCertificates(ssl)
  return client
}

function made(Client: PgClientClass, url: string): InstanceType<PgClientClass> {
  try {
    return new Client({ connectionString: url })
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (syscall !== undefined) {
      throw new InvalidArgumentError(`${FILES} to name files that this process can read, got ${code}.`)
    }
    throw new InvalidArgumentError(
      'Expected `url` to be one that the package pg accepts, got one that it refuses. Check its parameters.',
      { cause: error },
    )
  }
}

function checkCertificates(ssl: SecureContextOptions): void {
  try {
    // A text that is no certificate would be ignored in silence, and then no server trusted.
    if (ssl.ca !== undefined) new X509Certificate(ssl.ca as string)
    createSecureContext(ssl)
  } catch (error) {
    throw new InvalidArgumentError(
      `${FILES} to name PEM files, the last two of one pair, got what OpenSSL refuses.`,
      { cause: error },
    )
  }
}

const FILES = 'Expected `sslrootcert`, `sslcert` and `sslkey` of `url`'
