import { type ClockReading, type Finding, milliseconds, readClock, within } from '../../base/diagnosis.ts'
import { connectionsOf, type PostgresConnections } from '../../postgres/connections.ts'
import { newClient } from './open.ts'

/** What is to be said of the database that a URL names, beyond what the store itself notices. */
export async function diagnosePostgres(url: string): Promise<readonly Finding[]> {
  const connections = connectionsOf(await newClient(url), { max: 1, applicationName: 'holdfast doctor' })
  try {
    const facts = await within(LIMIT_MS, factsOf(connections))
    return CHECKS.flatMap((check) => check(facts) ?? [])
  } catch {
    // That it cannot be reached was noticed by the store.
    return []
  } finally {
    await connections.close()
  }
}

const LIMIT_MS = 5000

interface DatabaseFacts {
  readonly version: number
  readonly release: string
  readonly isStandby: boolean
  readonly isPooled: boolean
  readonly settings: Readonly<Record<string, string>>
  readonly standbys: number
  readonly clock: ClockReading
}

async function factsOf(connections: PostgresConnections): Promise<DatabaseFacts> {
  const [row = {}] = await connections.query(
    `select pg_catalog.current_setting('server_version_num') as version,
      pg_catalog.current_setting('server_version') as release,
      pg_catalog.pg_is_in_recovery()::text as standby,
      (select pg_catalog.count(*) from pg_catalog.pg_stat_replication)::text as standbys`,
  )
  const rows = await connections.query(
    `select name, setting from pg_catalog.pg_settings
     where name in ('fsync', 'synchronous_commit', 'synchronous_standby_names')`,
  )
  return {
    version: Number(row['version']),
    release: String(row['release']),
    isStandby: row['standby'] === 'true',
    isPooled: await connections.isPooled(),
    settings: Object.fromEntries(rows.map(({ name, setting }) => [String(name), String(setting)])),
    standbys: Number(row['standbys']),
    clock: await readClock(async () => {
      const [now] = await connections.query(
        `select (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::text as ms`,
      )
      return Number(now?.['ms'])
    }),
  }
}

const CHECKS: readonly ((facts: DatabaseFacts) => Finding | undefined)[] = [
  version,
  role,
  pooler,
  durability,
  standbys,
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

function role({ isStandby }: DatabaseFacts): Finding {
  const check = 'role'
  if (!isStandby) return { check, verdict: 'ok', text: 'The primary.' }
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
    text: 'A pooler stands between here and the server: locks work, but nobody is woken from another process: the store looks every 250 ms instead, and advisorySession() is refused. Name the server itself for locks.',
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
  return { check, verdict: 'ok', text: 'Every grant is on disk before it is answered.' }
}

function standbys({ standbys: count, settings }: DatabaseFacts): Finding | undefined {
  if (count === 0) return undefined
  const check = 'fail-over'
  const waits = settings['synchronous_standby_names'] !== '' && settings['synchronous_commit'] !== 'local'
  if (waits) return { check, verdict: 'ok', text: 'A standby has every lock before it is granted.' }
  return {
    check,
    verdict: 'warning',
    text: 'The standby may not know the last locks when it takes over. Name it in synchronous_standby_names if none may be forgotten, or check the fence.',
  }
}

function clock({ clock: { aheadMs, errorMs } }: DatabaseFacts): Finding {
  const check = 'clock'
  if (Math.abs(aheadMs) < FAR_MS) {
    return {
      check,
      verdict: 'ok',
      text: `Within ${milliseconds(Math.abs(aheadMs) + errorMs)} of this machine's.`,
    }
  }
  return {
    check,
    verdict: 'warning',
    text: `${milliseconds(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'} this machine's. Leases do not mind, but fences count from it, so they may fall when the locks move to another server. Let NTP set both.`,
  }
}

const OLDEST = 140_000
const FAR_MS = 1000
