import {
  type ClockReading,
  clockFinding,
  type Finding,
  milliseconds,
  readClock,
  unseenServer,
} from '../../base/diagnosis.ts'
import { explained } from '../../base/explained.ts'
import { within } from '../../base/within.ts'
import { clientOfUrl } from '../../postgres/client-of-url.ts'
import { connectionsOf, type PostgresConnections } from '../../postgres/connections.ts'
import { executorOf, type SqlClient } from '../../postgres/executor.ts'
import { storeErrorOf } from '../../postgres/failures.ts'
import type { DriverOptions } from '../driver.ts'

/** Findings about the database that a URL names, beyond those of the store itself. */
export async function diagnosePostgres(
  url: string,
  { readOnly }: DriverOptions,
): Promise<readonly Finding[]> {
  const connections = connectionsOf(await clientOfUrl(url), { max: 1, applicationName: 'holdfast doctor' })
  try {
    const facts = { ...(await within(LIMIT_MS, factsOf(connections, url))), readOnly }
    return CHECKS.flatMap((check) => check(facts) ?? [])
  } catch (error) {
    return [unseenServer(explained(storeErrorOf(error, { doing: 'looking at the server' })))]
  } finally {
    await connections.close()
  }
}

const LIMIT_MS = 5000

interface DatabaseFacts {
  readonly version: number
  readonly release: string
  readonly isStandby: boolean
  /** Whether the doctor was asked to look as a role that may only read. */
  readonly readOnly: boolean
  readonly isPooled: boolean
  readonly settings: Readonly<Record<string, string>>
  /** The isolation level of a transaction that sets none; undefined where that cannot be found out. */
  readonly defaultIsolation: string | undefined
  readonly standbys: number
  /** How many processes that receive the log are hidden from this role: standbys, or backups. */
  readonly hiddenReceivers: number
  /** The open connections of all users. */
  readonly connections: number
  /** The oldest open transaction that this role can see. */
  readonly oldest: { readonly pid: string; readonly openMs: number } | undefined
  /** How much of the queue of notifications is full, from 0 to 1. */
  readonly queueUsage: number
  readonly clock: ClockReading
  /** Undefined where there are no tables, or the role may not read them. */
  readonly fences: FenceFacts | undefined
}

interface FenceFacts {
  /** The highest of all. */
  readonly last: number
  /** How many holders have a higher fence than the one that the table keeps for their keys. */
  readonly lowered: number
}

async function factsOf(
  connections: PostgresConnections,
  url: string,
): Promise<Omit<DatabaseFacts, 'readOnly'>> {
  const [row = {}] = await connections.query(
    `select pg_catalog.current_setting('server_version_num') as version,
      pg_catalog.current_setting('server_version') as release,
      pg_catalog.pg_is_in_recovery()::text as standby,
      pg_catalog.pg_notification_queue_usage()::text as queue,
      (select pg_catalog.sum(numbackends) from pg_catalog.pg_stat_database)::text as connections,
      (select pg_catalog.count(*) from pg_catalog.pg_stat_replication
       where state <> 'backup' and application_name not in ('pg_basebackup', 'pg_receivewal'))::text as standbys,
      (select pg_catalog.count(*) from pg_catalog.pg_stat_replication where state is null)::text as hidden`,
  )
  const rows = await connections.query(
    `select name, setting from pg_catalog.pg_settings
     where name = any ($1::text[])`,
    [`{${SETTINGS.join(',')}}`],
  )
  // A role outside pg_read_all_stats sees its own transactions only.
  const [oldest] = await connections.query(
    `select pid::text, (extract(epoch from pg_catalog.clock_timestamp() - xact_start) * 1000)::text as ms
     from pg_catalog.pg_stat_activity
     where datname = pg_catalog.current_database() and backend_xmin is not null and xact_start is not null
     order by xact_start limit 1`,
  )
  return {
    version: Number(row['version']),
    release: String(row['release']),
    isStandby: row['standby'] === 'true',
    isPooled: await connections.isPooled(),
    settings: Object.fromEntries(rows.map(({ name, setting }) => [String(name), String(setting)])),
    defaultIsolation: await defaultIsolation(url),
    standbys: Number(row['standbys']),
    hiddenReceivers: Number(row['hidden']),
    connections: Number(row['connections']),
    oldest: oldest && { pid: String(oldest['pid']), openMs: Number(oldest['ms']) },
    queueUsage: Number(row['queue']),
    fences: await fencesOf(connections),
    clock: await readClock(async () => {
      const [now] = await connections.query(
        `select (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::text as ms`,
      )
      return Number(now?.['ms'])
    }),
  }
}

async function fencesOf(connections: PostgresConnections): Promise<FenceFacts | undefined> {
  try {
    const [row] = await connections.query(
      `select (select max(fence) from holdfast.lock_fences)::text as last,
        (select pg_catalog.count(*) from holdfast.lock_holders as holder
          left join holdfast.lock_fences as known on known.lock = pg_catalog.hashtext(holder.key) & 1023
          where holder.fence > coalesce(known.fence, 0))::text as lowered`,
    )
    return { last: Number(row?.['last'] ?? 0), lowered: Number(row?.['lowered']) }
  } catch {
    return undefined
  }
}

/** Read with the settings of the user: the store changes the level on its own connections. */
async function defaultIsolation(url: string): Promise<string | undefined> {
  const client = (await clientOfUrl(url)) as unknown as SqlClient & {
    connect?(): Promise<unknown>
    end(): Promise<void>
    on?(event: 'error', listener: () => void): unknown
  }
  // A client of pg tells a lost connection to its listeners, too, and without one the process would end.
  client.on?.('error', () => {})
  try {
    await client.connect?.()
    const [row] = await executorOf(client).query('show default_transaction_isolation')
    return String(row?.['default_transaction_isolation'])
  } catch {
    // The last connection was taken, by ours.
    return undefined
  } finally {
    await client.end()
  }
}

const SETTINGS: readonly string[] = [
  'autovacuum',
  'fsync',
  'full_page_writes',
  'max_connections',
  'superuser_reserved_connections',
  'synchronous_commit',
  'synchronous_standby_names',
]

const CHECKS: readonly ((facts: DatabaseFacts) => Finding | undefined)[] = [
  version,
  role,
  pooler,
  isolation,
  durability,
  standbys,
  connections,
  notifications,
  vacuum,
  transactions,
  lastFence,
  clock,
]

function version({ version, release }: DatabaseFacts): Finding {
  const check = 'version'
  if (version >= OLDEST) return { check, verdict: 'ok', text: `PostgreSQL ${release}.` }
  return {
    check,
    verdict: 'warning',
    text: `PostgreSQL ${release} is older than what the store is made for. Update it to 14 or newer.`,
  }
}

function role({ isStandby, readOnly }: DatabaseFacts): Finding {
  const check = 'role'
  if (!isStandby) return { check, verdict: 'ok', text: 'The primary.' }
  if (readOnly) {
    return {
      check,
      verdict: 'warning',
      text: 'The server is a standby. What its primary did in the last moments may be missing in what is shown here.',
    }
  }
  return {
    check,
    verdict: 'problem',
    text: 'The server is a standby and takes no writes. Connect to the primary (target_session_attrs=read-write).',
  }
}

function pooler({ isPooled }: DatabaseFacts): Finding {
  const check = 'pooler'
  if (!isPooled) return { check, verdict: 'ok', text: 'Nothing stands between here and the server.' }
  return {
    check,
    verdict: 'warning',
    text: 'A pooler stands between here and the server. Locks work, but nobody is woken from another process. The store looks every 250 ms instead, and advisorySession() is refused. Name the server itself for locks.',
  }
}

function isolation({ defaultIsolation: level }: DatabaseFacts): Finding | undefined {
  const check = 'isolation'
  if (level === undefined) return undefined
  if (level === 'read committed') return { check, verdict: 'ok', text: 'Transactions are READ COMMITTED.' }
  return {
    check,
    verdict: 'warning',
    text: `Transactions are ${level.toUpperCase()} by default. The store's own say READ COMMITTED, but one of yours that waits for advisoryXact() sees the data as it was before. Begin these with ISOLATION LEVEL READ COMMITTED.`,
  }
}

function durability({ settings }: DatabaseFacts): Finding {
  const check = 'durability'
  if (settings['fsync'] === 'off') {
    return {
      check,
      verdict: 'problem',
      text: 'With fsync off a machine that crashes may lose the whole database. Set fsync on.',
    }
  }
  if (settings['full_page_writes'] === 'off') {
    return {
      check,
      verdict: 'warning',
      text: 'With full_page_writes off a machine that crashes may leave broken pages, unless its file system writes whole ones. Set it on.',
    }
  }
  return { check, verdict: 'ok', text: 'Every grant is on disk before it is answered.' }
}

function standbys({ standbys: count, hiddenReceivers, settings }: DatabaseFacts): Finding | undefined {
  const check = 'fail-over'
  if (count === 0) {
    if (hiddenReceivers === 0) return undefined
    return {
      check,
      verdict: 'warning',
      text: 'The doctor could not look at the standbys, because the role is no member of pg_read_all_stats. Run the doctor as a role that is.',
    }
  }
  const waits = settings['synchronous_standby_names'] !== '' && settings['synchronous_commit'] !== 'local'
  if (waits) return { check, verdict: 'ok', text: 'A standby has every lock before it is granted.' }
  return {
    check,
    verdict: 'warning',
    text: 'The standby may not know the last locks when it takes over. Name it in synchronous_standby_names if none may be forgotten, or check the fence.',
  }
}

function connections({ connections: count, settings }: DatabaseFacts): Finding {
  const check = 'connections'
  const most = Number(settings['max_connections']) - Number(settings['superuser_reserved_connections'] ?? 0)
  if (count < most * NEARLY_FULL) {
    return { check, verdict: 'ok', text: `${count} of ${most} connections are in use.` }
  }
  return {
    check,
    verdict: 'warning',
    text: `${count} of ${most} connections are in use, and a process that finds none gets no lock. Raise max_connections, or put a pooler in front of what is not about locks.`,
  }
}

export function notifications({ queueUsage }: Pick<DatabaseFacts, 'queueUsage'>): Finding | undefined {
  if (queueUsage < HALF_FULL) return undefined
  return {
    check: 'notifications',
    verdict: 'warning',
    text: `The queue of NOTIFY is ${Math.round(queueUsage * 100)} % full, and nobody is woken from another process when it is full. Some session listens in a transaction that does not end: pg_stat_activity shows it.`,
  }
}

function lastFence({ fences, clock: { aheadMs } }: DatabaseFacts): Finding | undefined {
  const check = 'last fence'
  if (fences === undefined) return undefined
  const { last, lowered } = fences
  if (last >= LARGEST_FENCE) {
    return {
      check,
      verdict: 'problem',
      text: `The table lock_fences keeps a fence that nobody was given, and there are hardly any above it. ${FENCE_ADVICE}`,
    }
  }
  if (lowered > 0) {
    return {
      check,
      verdict: 'problem',
      text: `The table lock_fences keeps a lower fence than a holder has, so fences may fall if the clock of the server is set back. ${FENCE_ADVICE}`,
    }
  }
  const aheadByMs = last / 1000 - (Date.now() + aheadMs)
  if (aheadByMs < FENCES_AHEAD_MS) return undefined
  return {
    check,
    verdict: 'warning',
    text: `The last fence is ${milliseconds(aheadByMs)} ahead of the clock of the server, which was set back, or somebody wrote it. The fences go on from there; let NTP set the clock.`,
  }
}

function vacuum({ settings }: DatabaseFacts): Finding | undefined {
  if (settings['autovacuum'] !== 'off') return undefined
  return {
    check: 'vacuum',
    verdict: 'warning',
    text: 'With autovacuum off nobody clears away what locks leave behind, and they get slower and slower. Set it on.',
  }
}

export function transactions({ oldest }: Pick<DatabaseFacts, 'oldest'>): Finding | undefined {
  if (oldest === undefined || oldest.openMs < LONG_MS) return undefined
  return {
    check: 'transactions',
    verdict: 'warning',
    text: `A transaction has been open for ${milliseconds(oldest.openMs)} (process ${oldest.pid}), and nothing that was deleted since can be cleared away: each lock steps over it. End it, and set idle_in_transaction_session_timeout.`,
  }
}

function clock(facts: DatabaseFacts): Finding {
  return clockFinding(facts.clock)
}

const OLDEST = 140_000
const NEARLY_FULL = 0.9
const HALF_FULL = 0.5
const LONG_MS = 10 * 60_000
/** Half of what a bigint holds. The time in µs reaches it in 140,000 years. */
const LARGEST_FENCE = 4.6e18
const FENCES_AHEAD_MS = 60_000
const FENCE_ADVICE =
  'Somebody has written it. Delete its rows, and the fences go on from the time of the server.'
