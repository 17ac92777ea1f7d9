import { show } from '../base/duration.ts'
import { fieldOf, messageOf } from '../base/thrown.ts'
import { unreachedBecause } from '../base/unreached.ts'
import { StoreError } from '../errors.ts'
import { serverErrorIn, sqlStateOf } from './executor.ts'

/** The SQLSTATE of an error of the server; undefined for other errors. */
export function sqlState(error: unknown): string | undefined {
  const code = fieldOf(error, 'code')
  if (typeof code !== 'string' || !/^[0-9A-Z]{5}$/.test(code)) return undefined
  // Codes of Node.js (EPIPE) look alike, but only errors of a server have a severity. A pooler sets one of the two fields.
  return (fieldOf(error, 'severity') ?? fieldOf(error, 'severity_local')) === undefined ? undefined : code
}

/** Whether a schema, a table or a function is missing. */
export function isAbsent(error: unknown): boolean {
  return ['3F000', '42P01', '42883'].includes(sqlState(error) ?? '')
}

/** Sends a statement or a transaction again, up to five times, if the server has undone it because of a concurrent one. */
export async function retried<Answer>(send: () => Promise<Answer>): Promise<Answer> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await send()
    } catch (error) {
      const state = sqlState(error)
      if (attempt === MOST_ATTEMPTS || (state !== '40001' && state !== '40P01')) throw error
    }
  }
}

const MOST_ATTEMPTS = 5

export interface FailedRequest {
  readonly key?: string | undefined
  /** "Holdfast was …". */
  readonly doing: string
  /** The page with the grants that this part of the library needs. Default: docs/postgres.md. */
  readonly page?: 'docs/postgres.md' | 'docs/advisory.md' | 'docs/jobs.md' | 'docs/guard.md' | undefined
  /** The schema with the tables, if it is to be named where something is missing in it. */
  readonly schema?: string | undefined
}

/**
 * The error that a caller gets: `store-refused` if asking again cannot help until a person has changed something, else
 * `store-unavailable`. The `cause` has the server's own words, without the statement and its parameters.
 */
export function storeErrorOf(
  thrown: unknown,
  { key, doing, page = 'docs/postgres.md', schema }: FailedRequest,
): StoreError {
  if (thrown instanceof StoreError) return thrown
  const error = withoutStatement(thrown)
  // A client that wraps another client's errors keeps the code further inside.
  const state = sqlState(error) ?? sqlStateOf(error)
  const cause = causeOf(error, state)
  const refusal = state === undefined ? refusalOf(error) : (REFUSALS[state] ?? REFUSALS[state.slice(0, 2)])
  if (refusal !== undefined) {
    const named = refusal.replace(SCHEMA, schema === undefined ? 'schema' : `schema ${schema}`)
    const text = named
      .replace(MIGRATE, page === 'docs/jobs.md' ? 'jobs.migrate()' : 'migrate()')
      .replace(PAGE, page)
    return new StoreError('store-refused', `${text} Holdfast was ${doing}.`, { key, cause })
  }
  const trouble = state === undefined ? unreached(error) : (TROUBLES[state] ?? TROUBLES[state.slice(0, 2)])
  if (trouble !== undefined)
    return new StoreError('store-unavailable', `${trouble} Holdfast was ${doing}.`, { key, cause })
  const unknown = `PostgreSQL refused a statement (SQLSTATE ${state}). Its words are in the \`cause\`. Holdfast was ${doing}.`
  return new StoreError('store-refused', unknown, { key, cause })
}

/** Whether a statement was refused because of one of its values, by the `cause` of its error. It may then succeed with others. */
export function isAboutValue(cause: unknown): boolean {
  const code = fieldOf(cause, 'code')
  return typeof code === 'string' && /^(22|54)/.test(code)
}

/** Whether the server ended a statement because of its time limit, by the `cause` of its error. */
export function isOverdue(cause: unknown): boolean {
  const code = fieldOf(cause, 'code')
  return code === '57014' || code === '55P03' || code === '25P04'
}

/** Without what clients add to their errors: the statement, its parameters, and the options of the connection. */
function causeOf(error: unknown, state: string | undefined): Error {
  const cause = new Error(serverErrorIn(error)?.message ?? messageOf(error))
  const code = state ?? fieldOf(error, 'code')
  return code === undefined ? cause : Object.assign(cause, { code })
}

/** Drizzle puts the statement and its parameters into the message of an error, around the driver's. */
function withoutStatement(error: unknown): unknown {
  return fieldOf(error, 'params') === undefined ? error : (fieldOf(error, 'cause') ?? error)
}

function unreached(error: unknown): string {
  const why = unreachedBecause(error)
  return why === undefined ? NO_ANSWER : `PostgreSQL could not be reached. ${why}`
}

const NO_ANSWER =
  'PostgreSQL could not be reached, or did not answer. Check that it runs, its address, and the network in between.'
const CREDENTIALS =
  'PostgreSQL did not accept the user name and password of the client, or got none. Check its credentials and pg_hba.conf.'
const UNREADABLE =
  'A certificate or key that the PostgreSQL client names cannot be read. Check `sslrootcert`, `sslcert` and `sslkey` of its connection string.'
const PAGE = '{page}'
const SCHEMA = '{schema}'
const MIGRATE = '{migrate}'
const RIGHTS =
  'The PostgreSQL role may not do what has to be done. Grant it what {page} lists, or run {migrate} as a role that owns the schema.'
const READ_ONLY =
  'The PostgreSQL server (or the session) is read-only. Connect to the primary; in a fail-over this passes by itself.'
const TAKEN =
  'The PostgreSQL {schema} has a table, type or function that Holdfast did not make, under a name that it needs. Choose another `schema`.'
const FULL = 'PostgreSQL has no room left. Look at its disk, its memory and its log.'

/** By SQLSTATE or its class, which is the first two characters. */
const REFUSALS: Readonly<Record<string, string>> = {
  '28': CREDENTIALS,
  '3D': 'The PostgreSQL database that the client names does not exist. Create it, or name another one.',
  '42501': RIGHTS,
  '3F': 'The PostgreSQL {schema} does not exist. Run {migrate} first.',
  '42P01': 'The PostgreSQL {schema} lacks a table. Run {migrate} first.',
  '42883': 'The PostgreSQL {schema} lacks a function. Run {migrate} first.',
  '42P07': TAKEN,
  '42710': TAKEN,
  '42723': TAKEN,
  '42703': TAKEN,
  '42804': TAKEN,
  '42809': TAKEN,
  '22': 'PostgreSQL refused a value, often a text that is too long or has a zero byte. Its words are in the `cause`.',
}

const TROUBLES: Readonly<Record<string, string>> = {
  '08': NO_ANSWER,
  '25006': READ_ONLY,
  '25P03': 'PostgreSQL ended a transaction that was left open for too long.',
  '25P04': 'PostgreSQL ended the session after its `transaction_timeout`. Let the role have a longer one.',
  '40': 'PostgreSQL undid the statement because of others at the same time, several times in a row.',
  '53100': FULL,
  '53200': FULL,
  '53': 'PostgreSQL has no connection left for us. Raise `max_connections`, or open fewer.',
  '55': 'PostgreSQL did not give us a lock in time.',
  '57014': 'PostgreSQL ended the statement after its time limit.',
  '57': 'PostgreSQL is shutting down, starting, or has ended our session.',
  '58': 'PostgreSQL has trouble with its files. Look at its log.',
  XX: 'PostgreSQL has a problem of its own. Look at its log.',
}

/** Refusals that are not the server's: TLS, certificates and credentials, where asking again does not help. */
function refusalOf(error: unknown): string | undefined {
  const [code, syscall] = [show(fieldOf(error, 'code')), fieldOf(error, 'syscall')]
  if ((syscall === 'open' || syscall === 'read') && /ENOENT|EACCES|EISDIR/.test(code)) return UNREADABLE
  const words = `${code} ${messageOf(error)}`
  if (/does not support SSL|certificate|SELF_SIGNED|ERR_TLS|ERR_OSSL/i.test(words)) {
    return 'PostgreSQL and the client do not agree on TLS. Check `ssl` of the client and the certificate of the server.'
  }
  if (/client password must be a string|SASL/.test(words)) return CREDENTIALS
  return undefined
}
