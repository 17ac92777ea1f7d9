import type { Finding } from '../../../base/diagnosis.ts'
import type { DriverOptions } from '../../driver.ts'
import { settingsOf } from '../options.ts'
import type { RedisLink, ServerAddress } from '../server/client-link.ts'
import { counted } from '../server/doctor-checks.ts'
import { addressOf, diagnoseServers, onceOpen } from '../server/doctor-server.ts'
import { unexpectedReply } from '../server/failures.ts'
import { linksOf } from '../server/links-of.ts'
import { newClient } from '../server/new-client.ts'
import { entries } from '../server/replies.ts'
import { RoomNames } from '../server/room-names.ts'
import { parseSentinelUrl } from './open.ts'

/** Findings about the Sentinels, the master that they name, and its replicas. */
export async function diagnoseRedisSentinel(
  url: string,
  { readOnly }: DriverOptions,
): Promise<readonly Finding[]> {
  const { serverUrl, sentinel, options } = parseSentinelUrl(url)
  const names = new RoomNames(settingsOf(options).prefix)
  const linkTo = linksOf(await newClient(serverUrl))
  const { name, nodes, username, password, tls } = sentinel
  const access = { username, password, tls }
  const views = await Promise.all(
    nodes.map(async ({ host, port = 0 }) => {
      const where = addressOf({ host, port })
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
  const servers = await diagnoseServers(known.servers, {
    linkTo,
    setting: 'sentinel',
    names,
    fenceOf: () => names.fence,
    readOnly,
  })
  return [...findings, ...servers]
}

/** More than anybody has. */
const MOST_REPLICAS = 1000

interface SentinelView {
  readonly fields: ReadonlyMap<string, string>
  /** The master first. */
  readonly servers: readonly ServerAddress[]
}

async function viewFrom(
  link: RedisLink,
  name: string,
): Promise<{ readonly problem?: string; readonly view?: SentinelView }> {
  const asked = await onceOpen(link, async (connection) => {
    const fields = new Map(entries(await connection.send('SENTINEL', ['MASTER', name])))
    const replicas = await connection.send('SENTINEL', ['REPLICAS', name])
    if (!Array.isArray(replicas) || replicas.length > MOST_REPLICAS) throw unexpectedReply(replicas)
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
