import { type Finding, milliseconds, readClock } from '../../../base/diagnosis.ts'
import { explained } from '../../../base/explained.ts'
import { shortened } from '../../../base/text.ts'
import { within } from '../../../base/within.ts'
import { textsOf } from './answers.ts'
import type { RawConnection, RedisLink, ServerAddress } from './client-link.ts'
import { SERVER_CHECKS, type ServerFacts } from './doctor-checks.ts'
import { type FencesPlace, lastFencesOf } from './doctor-fences.ts'
import { storeErrorOf, unexpectedReply } from './failures.ts'
import { isOnReplica, pairs, permitted } from './replies.ts'
import { scannedNames } from './scanned-names.ts'

/** Findings about servers that may become master: about each, then about all of them. */
export async function diagnoseServers(
  servers: readonly ServerAddress[],
  { linkTo, ...place }: RoomsPlace & { readonly linkTo: (server: ServerAddress) => RedisLink },
): Promise<readonly Finding[]> {
  const asked = await Promise.all(
    servers.map(async (server) => ({
      where: addressOf(server),
      facts: await factsOf(linkTo(server), place),
    })),
  )
  const findings: Finding[] = []
  for (const { where, facts } of asked) {
    if ('problem' in facts)
      findings.push({ check: 'connection', where, verdict: 'warning', text: facts.problem })
    else findings.push(...findingsOf(facts).map((finding) => ({ ...finding, where })))
  }
  const seen = asked.flatMap(({ facts }) => ('problem' in facts ? [] : [facts]))
  return [
    ...findings,
    ...clocks(seen, 'A fail-over to the slower one that is quicker than that may lower the fences.'),
  ]
}

export function findingsOf(facts: ServerFacts): readonly Finding[] {
  return SERVER_CHECKS.flatMap((check) => check(facts) ?? [])
}

/** Where the rooms of a store are. */
export interface RoomsPlace extends FencesPlace {
  /** Whether the user may only read, so nothing is asked that needs more. */
  readonly readOnly: boolean
}

export async function factsOf(
  link: RedisLink,
  { setting, names, fenceOf, readOnly }: RoomsPlace,
): Promise<ServerFacts | { readonly problem: string }> {
  return await onceOpen(link, async (connection) => {
    const info = infoOf(await permitted(connection.send('INFO', [])))
    const isReplica = info.get('role') === 'slave' || (await isOnReplica(connection))
    const mayAskTime = (await permitted(connection.send('TIME', []))) !== undefined
    const clock = mayAskTime
      ? await readClock(async () => timeOf(await connection.send('TIME', [])))
      : undefined
    return {
      info,
      isReplica,
      readOnly,
      settings: await settingsOf(connection),
      clock,
      setting,
      // A replica has those of its master.
      lastFences:
        isReplica && !readOnly ? new Map() : await lastFencesOf(connection, { setting, names, fenceOf }),
      tenants: await tenantsOf(connection, names.prefix),
      isMute:
        !readOnly && (await permitted(connection.send('PUBLISH', [names.channel(''), '']))) === undefined,
    }
  })
}

/** The keys of others, by what stands before the first colon, or before the braces of a room. Looks at some thousand keys. */
async function tenantsOf(
  connection: RawConnection,
  prefix: string,
): Promise<ReadonlyMap<string, 'locks' | 'other'>> {
  const tenants = new Map<string, 'locks' | 'other'>()
  for await (const found of scannedNames(connection, { mostScans: MOST_TENANT_SCANS })) {
    for (const name of found) {
      if (name.startsWith(prefix)) continue
      const [, room] = /^([^{]*)\{.*\}$/s.exec(name) ?? []
      const tenant = shortened(room ?? /^[^:]*:/.exec(name)?.[0] ?? name, LONGEST_TENANT)
      if (room !== undefined || !tenants.has(tenant))
        tenants.set(tenant, room === undefined ? 'other' : 'locks')
    }
    if (tenants.size >= MOST_TENANTS) break
  }
  return tenants
}

const MOST_TENANT_SCANS = 10
const MOST_TENANTS = 100
const LONGEST_TENANT = 40

const SETTINGS: readonly string[] = [
  'appendfsync',
  'save',
  'stop-writes-on-bgsave-error',
  'min-replicas-to-write',
]

async function settingsOf(connection: RawConnection): Promise<ReadonlyMap<string, string>> {
  const settings = new Map<string, string>()
  for (const name of SETTINGS) {
    // One at a time: Redis 6.2 takes no more.
    const [, value] = pairs(await permitted(connection.send('CONFIG', ['GET', name])))
    if (value !== undefined) settings.set(name, String(value).slice(0, LONGEST_VALUE))
  }
  return settings
}

/** A fence is at least the server's time, so it may fall where another server goes on whose clock is far behind. */
export function clocks(servers: readonly ServerFacts[], harm: string): readonly Finding[] {
  const known = servers.flatMap(({ clock }) => clock ?? [])
  if (known.length < 2) return []
  const check = 'clocks'
  const ahead = known.map(({ aheadMs }) => aheadMs)
  const errorMs = Math.max(...known.map((clock) => clock.errorMs))
  const apartMs = Math.max(...ahead) - Math.min(...ahead)
  if (apartMs < APART_MS + 2 * errorMs) {
    return [{ check, verdict: 'ok', text: `Of the servers: within ${milliseconds(apartMs + 2 * errorMs)}.` }]
  }
  return [
    {
      check,
      verdict: 'warning',
      text: `Those of the servers are ${milliseconds(apartMs)} apart. ${harm} Let NTP set them.`,
    },
  ]
}

const APART_MS = 250

/** Asks on a connection of its own. Resolves with the answer, or with what is wrong. */
export async function onceOpen<T extends object>(
  link: RedisLink,
  ask: (connection: RawConnection) => Promise<T>,
): Promise<T | { readonly problem: string }> {
  const connection = link.open(() => {})
  try {
    return await within(LIMIT_MS, ask(connection))
  } catch (error) {
    return { problem: explained(storeErrorOf(connection.reasonOf(error), undefined, 0)) }
  } finally {
    connection.close()
  }
}

const LIMIT_MS = 5000

function infoOf(reply: unknown): ReadonlyMap<string, string> {
  const text = typeof reply === 'string' ? reply.slice(0, LONGEST_INFO) : ''
  const lines = text.matchAll(/^(\w{1,100}):(.*?)\r?$/gm)
  return new Map(Array.from(lines, ([, name = '', value = '']) => [name, value.slice(0, LONGEST_VALUE)]))
}

/** The longest INFO and the longest value that are read: many times what a real server answers. */
const LONGEST_INFO = 100_000
const LONGEST_VALUE = 200

function timeOf(reply: unknown): number {
  const [seconds, microseconds] = textsOf(reply)
  const ms = Number(seconds) * 1000 + Number(microseconds) / 1000
  if (Number.isFinite(ms)) return ms
  throw unexpectedReply(reply)
}

export function addressOf({ host, port }: ServerAddress): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}
