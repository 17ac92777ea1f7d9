import { type Finding, milliseconds } from '../../base/diagnosis.ts'
import { explained } from '../../base/explained.ts'
import { within } from '../../base/within.ts'
import { answering } from '../redis/server/answering.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import { counted, type ServerFacts } from '../redis/server/doctor-checks.ts'
import { addressOf, clocks, factsOf } from '../redis/server/doctor-server.ts'
import { linksOf } from '../redis/server/links-of.ts'
import { newClient } from '../redis/server/new-client.ts'
import { RoomNames } from '../redis/server/room-names.ts'
import { RoomRequests } from '../redis/server/room-requests.ts'
import { SingleServer } from '../redis/server/single-server.ts'
import { VOTER_CHECKS } from './doctor-checks.ts'
import { parseOptions } from './options.ts'
import type { RedlockSettings } from './redlock-store.ts'
import { votingScripts } from './scripts.ts'
import { ServerScripts } from './server-scripts.ts'
import { SharedLink } from './shared-link.ts'
import { parseRedlockUrl } from './url.ts'

/** Findings about each server and about the quorum that they make, beyond what opening the store shows. */
export async function diagnoseRedlock(url: string): Promise<readonly Finding[]> {
  const { servers, options } = parseRedlockUrl(url)
  const settings = parseOptions(options)
  const asked = await Promise.all(servers.map((one) => diagnoseServer(one, settings)))
  const findings = asked.flatMap(({ where, findings }) => findings.map((finding) => ({ ...finding, where })))
  const facts = asked.flatMap((one) => (one.facts === undefined ? [] : [one.facts]))
  const ages = asked.flatMap(({ remembersMs }) => (remembersMs === undefined ? [] : [remembersMs]))
  return [
    ...findings,
    quorum(asked.length, facts.length),
    ...votes(asked.length, ages, settings),
    ...hosts(servers),
    ...clocks(facts, 'Servers that are `maxTtl` or more apart agree on no fence.'),
  ]
}

interface DiagnosedServer {
  readonly where: string
  readonly findings: readonly Finding[]
  /** Undefined if the server cannot vote. */
  readonly facts?: ServerFacts
  /** For how long the server has forgotten nothing. */
  readonly remembersMs?: number
}

async function diagnoseServer(url: string, settings: RedlockSettings): Promise<DiagnosedServer> {
  const { hostname, port } = new URL(url)
  const where = addressOf({ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || '6379') })
  const link = linksOf(await newClient(url))()
  const facts = await factsOf(link, {
    setting: 'alone',
    names: new RoomNames(settings.prefix),
    // A lock without fences has a number in its room, which does not raise the last fence.
    fenceOf: () => undefined,
    readOnly: false,
  })
  if ('problem' in facts) return { where, findings: [away(facts.problem)] }
  // Before any other script runs: a server that has run none shows that it has forgotten nothing; see identity.lua.
  const age = await ageOf(link, settings)
  const rights = await rightsOf(url, settings)
  const findings = [...rights, ...VOTER_CHECKS.flatMap((check) => check(facts) ?? [])]
  if (rights.some(({ check }) => check === 'connection')) return { where, findings }
  if ('verdict' in age) return { where, findings: [...findings, age] }
  const { remembersMs } = age
  return { where, findings: [...findings, vote(remembersMs, settings)], facts, remembersMs }
}

async function ageOf(link: RedisLink, settings: RedlockSettings): Promise<{ remembersMs: number } | Finding> {
  const shared = new SharedLink(link)
  try {
    const { rememberedSince } = await within(LIMIT_MS, new ServerScripts(shared, settings).identity())
    return { remembersMs: performance.now() - rememberedSince }
  } catch (error) {
    return away(explained(error))
  } finally {
    shared.replace()
  }
}

/** The problems of a user of this server alone. Among several servers, one that refuses counts as one that is away. */
async function rightsOf(url: string, settings: RedlockSettings): Promise<readonly Finding[]> {
  const store = await openAlone(url, settings).catch((error: unknown) => away(explained(error)))
  if ('verdict' in store) return [store]
  try {
    await within(
      LIMIT_MS,
      store.listen(() => {}),
    )
    return []
  } catch (error) {
    return [{ check: 'messages', verdict: 'warning', text: explained(error) }]
  } finally {
    await store.close()
  }
}

async function openAlone(url: string, { prefix }: RedlockSettings): Promise<RoomRequests> {
  const names = new RoomNames(prefix)
  const server = new SingleServer(linksOf(await newClient(url))(), {
    names,
    replicas: 0,
    scripts: votingScripts,
  })
  return answering(new RoomRequests(server, names))
}

function away(text: string): Finding {
  return { check: 'connection', verdict: 'warning', text }
}

function vote(remembersMs: number, { maxTtlMs }: RedlockSettings): Finding {
  const check = 'vote'
  const leftMs = maxTtlMs - remembersMs
  if (leftMs <= 0)
    return { check, verdict: 'ok', text: 'It has forgotten nothing for long enough: its vote counts.' }
  return {
    check,
    verdict: 'warning',
    text: `It has started, lost its data, had its clock set back, or was promoted from a replica, ${milliseconds(remembersMs)} ago, and may have forgotten a holder. Its vote counts in ${milliseconds(leftMs)}, with a \`maxTtl\` of ${milliseconds(maxTtlMs)}.`,
  }
}

function quorum(servers: number, answering: number): Finding {
  const check = 'quorum'
  const needed = Math.floor(servers / 2) + 1
  const spare = answering - needed
  const text = `${answering} of ${counted(servers, 'server')} answer`
  if (spare < 0) {
    return {
      check,
      verdict: 'problem',
      text: `${text}, and ${needed} have to. Bring the others back.`,
    }
  }
  if (servers % 2 === 0) {
    return {
      check,
      verdict: 'warning',
      text: `${text}. An even number survives the loss of no more than the odd one below it. Add one, or take one away.`,
    }
  }
  if (servers === 1) {
    return {
      check,
      verdict: 'warning',
      text: 'One server is no majority of anything. Use three or five, or a redis:// store.',
    }
  }
  if (spare === 0) {
    return {
      check,
      verdict: 'warning',
      text: `${text}, so none of them may be lost now. Bring the others back.`,
    }
  }
  return { check, verdict: 'ok', text: `${text}: ${spare} more may be lost.` }
}

function votes(servers: number, ages: readonly number[], { maxTtlMs }: RedlockSettings): readonly Finding[] {
  const needed = Math.floor(servers / 2) + 1
  const counting = ages.filter((ageMs) => ageMs >= maxTtlMs).length
  if (ages.length < needed || counting >= needed) return []
  return [
    {
      check: 'votes',
      verdict: 'warning',
      text: `The votes of ${counting} of ${counted(servers, 'server')} count now, and ${needed} have to before anybody gets a lock. That passes with time. For new servers, initRedlock() or holdfast init spares this wait, if it is called before any other process uses them. If it comes back, something restarts or empties the servers.`,
    },
  ]
}

function hosts(urls: readonly string[]): readonly Finding[] {
  const names = urls.map((url) => new URL(url).hostname)
  const [shared] = names.filter((name, index) => names.indexOf(name) !== index)
  if (shared === undefined) return []
  return [
    {
      check: 'hosts',
      verdict: 'warning',
      text: `More than one of the servers is on the host ${shared}: what befalls it befalls all of them. Give each a machine of its own.`,
    },
  ]
}

const LIMIT_MS = 5000
