import { type Finding, milliseconds, readClock, within } from '../../base/diagnosis.ts'
import { linksOf } from './client.ts'
import type { CommandConnection, RedisLink } from './connection.ts'
import { counted, SERVER_CHECKS, type ServerFacts } from './doctor-checks.ts'
import { replyCode, storeErrorOf } from './failures.ts'
import { checkUrl, newClient } from './open.ts'
import { parseSentinelUrl } from './open-sentinel.ts'

/** What is to be said of the server that a `redis://` URL names, beyond what the store itself notices. */
export async function diagnoseRedis(url: string): Promise<readonly Finding[]> {
  checkUrl(url)
  const facts = await factsOf(linksOf(await newClient(url))(), { failsOver: false })
  // That it cannot be reached was noticed by the store.
  return 'problem' in facts ? [] : findingsOf(facts)
}

/** Of the Sentinels, the master that they name, and its replicas. */
export async function diagnoseRedisSentinel(url: string): Promise<readonly Finding[]> {
  const { serverUrl, sentinel } = parseSentinelUrl(url)
  const linkTo = linksOf(await newClient(serverUrl))
  const { name, nodes, username, password, tls } = sentinel
  const access = { username, password, tls }
  const views = await Promise.all(
    nodes.map(async ({ host, port = 0 }) => {
      const where = addressOf(host, port)
      return { where, ...(await viewFrom(linkTo({ host, port, access }), name)) }
    }),
  )
  const findings: Finding[] = views.map(({ where, problem, view }) => ({
    check: 'sentinel',
    where,
    ...(problem === undefined ? stateOf(view) : { verdict: 'warning' as const, text: problem }),
  }))
  const known = views.find(({ view }) => view !== undefined)?.view
  if (known === undefined) return findings
  findings.push(quorum(known))
  const servers = await Promise.all(
    known.servers.map(async ({ host, port }) => ({
      where: addressOf(host, port),
      facts: await factsOf(linkTo({ host, port }), { failsOver: true }),
    })),
  )
  for (const { where, facts } of servers) {
    if ('problem' in facts)
      findings.push({ check: 'connection', where, verdict: 'warning', text: facts.problem })
    else findings.push(...findingsOf(facts).map((finding) => ({ ...finding, where })))
  }
  const seen = servers.flatMap(({ facts }) => ('problem' in facts ? [] : [facts]))
  return [...findings, ...clocks(seen)]
}

function findingsOf(facts: ServerFacts): readonly Finding[] {
  return SERVER_CHECKS.flatMap((check) => check(facts) ?? [])
}

async function factsOf(
  link: RedisLink,
  { failsOver }: { readonly failsOver: boolean },
): Promise<ServerFacts | { readonly problem: string }> {
  return await onceOpen(link, async (connection) => ({
    info: infoOf(await permitted(connection.send('INFO', []))),
    settings: await settingsOf(connection),
    clock: await readClock(async () => timeOf(await connection.send('TIME', []))),
    failsOver,
  }))
}

const SETTINGS: readonly string[] = [
  'appendfsync',
  'save',
  'stop-writes-on-bgsave-error',
  'min-replicas-to-write',
]

async function settingsOf(connection: CommandConnection): Promise<ReadonlyMap<string, string>> {
  const settings = new Map<string, string>()
  for (const name of SETTINGS) {
    // One at a time: Redis 6.2 takes no more.
    const [, value] = pairs(await permitted(connection.send('CONFIG', ['GET', name])))
    if (value !== undefined) settings.set(name, value)
  }
  return settings
}

interface SentinelView {
  readonly fields: ReadonlyMap<string, string>
  /** The master first. */
  readonly servers: readonly { readonly host: string; readonly port: number }[]
}

async function viewFrom(
  link: RedisLink,
  name: string,
): Promise<{ readonly problem?: string; readonly view?: SentinelView }> {
  const asked = await onceOpen(link, async (connection) => {
    const fields = new Map(entries(await connection.send('SENTINEL', ['MASTER', name])))
    const replicas = (await connection.send('SENTINEL', ['REPLICAS', name])) as unknown[]
    const all = [fields, ...replicas.map((replica) => new Map(entries(replica)))]
    return {
      fields,
      servers: all.map((each) => ({ host: each.get('ip') ?? '', port: Number(each.get('port')) })),
    }
  })
  return 'problem' in asked ? asked : { view: asked }
}

function stateOf(view: SentinelView | undefined): Pick<Finding, 'verdict' | 'text'> {
  const flags = view?.fields.get('flags') ?? ''
  if (/[so]_down/.test(flags))
    return { verdict: 'problem', text: 'It takes the master for dead. See whether a fail-over is under way.' }
  return { verdict: 'ok', text: 'It answers, and the master is up.' }
}

function quorum({ fields }: SentinelView): Finding {
  const check = 'quorum'
  const sentinels = Number(fields.get('num-other-sentinels')) + 1
  const needed = Number(fields.get('quorum'))
  const agree = `${needed} of ${counted(sentinels, 'Sentinel')} agree on a fail-over`
  if (sentinels >= 3) return { check, verdict: 'ok', text: `${agree}.` }
  return {
    check,
    verdict: 'warning',
    text: `${agree}, and a majority has to be there for one. Run three or more, each on a machine of its own.`,
  }
}

/** A fence is at least the server's time, so it may fall in a fail-over to a clock that is far behind. */
function clocks(servers: readonly ServerFacts[]): readonly Finding[] {
  if (servers.length < 2) return []
  const check = 'clocks'
  const ahead = servers.map(({ clock }) => clock.aheadMs)
  const errorMs = Math.max(...servers.map(({ clock }) => clock.errorMs))
  const apartMs = Math.max(...ahead) - Math.min(...ahead)
  if (apartMs < APART_MS + 2 * errorMs) {
    return [{ check, verdict: 'ok', text: `Of the servers: within ${milliseconds(apartMs + 2 * errorMs)}.` }]
  }
  return [
    {
      check,
      verdict: 'warning',
      text: `Those of the servers are ${milliseconds(apartMs)} apart. A fail-over to the slower one that is quicker than that may lower the fences. Let NTP set them.`,
    },
  ]
}

const APART_MS = 250

/** What comes of it on a connection of its own, or what is wrong. */
async function onceOpen<T extends object>(
  link: RedisLink,
  ask: (connection: CommandConnection) => Promise<T>,
): Promise<T | { readonly problem: string }> {
  const connection = link.open(() => {})
  try {
    return await within(LIMIT_MS, ask(connection))
  } catch (error) {
    return { problem: storeErrorOf(connection.reasonOf(error), undefined, 0).message }
  } finally {
    connection.close()
  }
}

const LIMIT_MS = 5000

/** Undefined where the user may not ask that. */
async function permitted(reply: Promise<unknown>): Promise<unknown> {
  try {
    return await reply
  } catch (error) {
    if (replyCode(error) === undefined) throw error
    return undefined
  }
}

function infoOf(reply: unknown): ReadonlyMap<string, string> {
  const lines = typeof reply === 'string' ? reply.matchAll(/^(\w+):(.*?)\r?$/gm) : []
  return new Map(Array.from(lines, ([, name = '', value = '']) => [name, value]))
}

function timeOf(reply: unknown): number {
  const [seconds, microseconds] = reply as [string, string]
  return Number(seconds) * 1000 + Number(microseconds) / 1000
}

/** A flat list, or a map where the client speaks RESP3. */
function pairs(reply: unknown): readonly string[] {
  if (Array.isArray(reply)) return reply as string[]
  if (reply instanceof Map) return [...(reply as Map<string, string>)].flat()
  return typeof reply === 'object' && reply !== null
    ? Object.entries(reply as Record<string, string>).flat()
    : []
}

function entries(reply: unknown): readonly (readonly [string, string])[] {
  const flat = pairs(reply)
  return flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? ''] as const] : []))
}

function addressOf(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}
