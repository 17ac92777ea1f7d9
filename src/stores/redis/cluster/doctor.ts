import type { Finding } from '../../../base/diagnosis.ts'
import type { DriverOptions } from '../../driver.ts'
import { settingsOf } from '../options.ts'
import type { ServerAddress } from '../server/client-link.ts'
import { counted } from '../server/doctor-checks.ts'
import { addressOf, diagnoseServers, onceOpen } from '../server/doctor-server.ts'
import { linksOf } from '../server/links-of.ts'
import { newClient } from '../server/new-client.ts'
import { permitted } from '../server/replies.ts'
import { RoomNames } from '../server/room-names.ts'
import { slotRanges } from './map.ts'
import { parseClusterUrl } from './open.ts'
import { SlotNames } from './slot-names.ts'
import { SLOTS } from './slots.ts'

/** Findings about the servers of a cluster, as one of the servers in the URL reports them. */
export async function diagnoseRedisCluster(
  url: string,
  { readOnly }: DriverOptions,
): Promise<readonly Finding[]> {
  const { serverUrl, seeds, options } = parseClusterUrl(url)
  const names = new RoomNames(settingsOf(options).prefix)
  const slotNames = new SlotNames(names)
  const linkTo = linksOf(await newClient(serverUrl))
  const views = await Promise.all(
    seeds.map(async (seed) => ({
      seed,
      view: await onceOpen(linkTo(seed), async (connection) => ({
        ...viewOf(await connection.send('CLUSTER', ['SLOTS']), seed),
        info: await permitted(connection.send('CLUSTER', ['INFO'])),
      })),
    })),
  )
  const findings = views.flatMap(({ seed, view }): readonly Finding[] => {
    const where = addressOf(seed)
    if ('problem' in view) return [{ check: 'connection', where, verdict: 'warning', text: view.problem }]
    return view.info === undefined
      ? [{ check: 'settings', where, verdict: 'warning', text: NO_CLUSTER_INFO }]
      : []
  })
  const known = views.flatMap(({ view }) => ('problem' in view ? [] : [view]))[0]
  if (known === undefined) return findings
  const servers = await diagnoseServers(known.servers, {
    linkTo,
    setting: 'cluster',
    names,
    fenceOf: (key) => slotNames.fenceIn(slotNames.slotOf(key)),
    readOnly,
  })
  return [...findings, slots(known), ...servers]
}

interface ClusterView {
  readonly served: number
  readonly masters: number
  readonly servers: readonly ServerAddress[]
}

function viewOf(reply: unknown, seed: ServerAddress): ClusterView {
  const servers = new Map<string, ServerAddress>()
  const masters = new Set<string>()
  let served = 0
  for (const { from, to, nodes } of slotRanges(reply)) {
    served += Math.max(0, to - from + 1)
    for (const [index, { host, port }] of nodes.entries()) {
      const server = { host: host || seed.host, port }
      servers.set(addressOf(server), server)
      if (index === 0) masters.add(addressOf(server))
    }
  }
  return { served, masters: masters.size, servers: [...servers.values()].slice(0, MOST_SERVERS) }
}

const NO_CLUSTER_INFO =
  'The user may not ask for CLUSTER INFO (+cluster|info), so a store may ask a master that is cut off from its cluster for as long as that lasts.'

/** More than any cluster has. A reply with more is not believed. */
const MOST_SERVERS = 1000

function slots({ served, masters }: ClusterView): Finding {
  const check = 'slots'
  if (served === SLOTS) {
    return { check, verdict: 'ok', text: `All slots are served, by ${counted(masters, 'master')}.` }
  }
  return {
    check,
    verdict: 'problem',
    text: `${SLOTS - served} of ${SLOTS} slots have no server, and keys in them no locks. Look at redis-cli --cluster check.`,
  }
}
