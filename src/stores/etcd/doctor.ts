import { type Finding, milliseconds, unseenServer } from '../../base/diagnosis.ts'
import { explained } from '../../base/explained.ts'
import type { DriverOptions } from '../driver.ts'
import { fenceBaseOf, MEMBER_CHECKS, type MemberFacts, togetherOf } from './doctor-checks.ts'
import { Cluster } from './grpc/cluster.ts'
import { type KnownMember, MEMBER_LIST, STATUS } from './grpc/doctor-messages.ts'
import { LEASE_GRANT, type Method, TXN } from './grpc/messages.ts'
import { parseUrl } from './open.ts'
import { KeyNames } from './rooms/key-names.ts'

/** Findings about each member that a URL names, and about the cluster, beyond what the store itself notices. */
export async function diagnoseEtcd(url: string, { readOnly }: DriverOptions): Promise<readonly Finding[]> {
  const { endpoints, auth, prefix = 'holdfast/' } = parseUrl(url)
  const options = { auth, tls: {}, prefix }
  const asked = await Promise.all(
    endpoints.map(async (endpoint) => {
      const cluster = new Cluster({ ...options, endpoints: [endpoint] })
      try {
        return { where: new URL(endpoint).host, facts: await factsOf(cluster, endpoints.length) }
      } finally {
        cluster.close()
      }
    }),
  )
  const findings = asked.flatMap(({ where, facts }): readonly Finding[] => {
    if ('problem' in facts) return [{ check: 'connection', where, verdict: 'warning', text: facts.problem }]
    return MEMBER_CHECKS.flatMap((check) => check(facts) ?? []).map((finding) => ({ ...finding, where }))
  })
  const seen = asked.flatMap(({ facts }) => ('problem' in facts ? [] : [facts]))
  if (seen.length === 0) {
    const [only] = findings
    return only !== undefined && endpoints.length === 1 ? [unseenServer(only.text)] : findings
  }
  const cluster = new Cluster({ ...options, endpoints })
  try {
    const rights = readOnly ? [] : await permitted(cluster, prefix)
    const together = togetherOf(seen, endpoints.length)
    return [...findings, ...together, ...rights, ...(await fenceBase(cluster, prefix)), CLOCK]
  } finally {
    cluster.close()
  }
}

async function factsOf(cluster: Cluster, named: number): Promise<MemberFacts | { readonly problem: string }> {
  try {
    const times: number[] = []
    let status = await ask(cluster, STATUS, {})
    for (let round = 0; round < ROUNDS; round += 1) {
      const begun = performance.now()
      status = await ask(cluster, STATUS, {})
      times.push(performance.now() - begun)
    }
    times.sort((one, other) => one - other)
    return {
      ...status,
      named,
      roundTripMs: times[Math.floor(ROUNDS / 2)] ?? 0,
      // Newer versions of etcd answer this only to a user who has authenticated.
      known: await ask(cluster, MEMBER_LIST, {}).catch((): readonly KnownMember[] => []),
    }
  } catch (error) {
    return { problem: explained(error) }
  }
}

const ROUNDS = 5

async function ask<Request, Reply>(
  cluster: Cluster,
  method: Method<Request, Reply>,
  request: Request,
): Promise<Reply> {
  return (await cluster.ask(method, request)).reply
}

/** Empty before the first process uses the etcd, and where it cannot be read: opening the store has reported that. */
async function fenceBase(cluster: Cluster, prefix: string): Promise<readonly Finding[]> {
  const { meta } = new KeyNames(prefix)
  try {
    const found = await ask(cluster, TXN, { when: [], apply: [{ tag: 'range', key: meta }], otherwise: [] })
    return fenceBaseOf(found.ranges[0]?.pairs[0])
  } catch {
    return []
  }
}

/** Whether the user may write. That the user may read was shown by opening the store. */
async function permitted(cluster: Cluster, prefix: string): Promise<readonly Finding[]> {
  try {
    await ask(cluster, TXN, writesNothing(prefix))
    return [
      { check: 'rights', verdict: 'ok', text: 'The user may write where the locks are.' },
      await shortest(cluster),
    ]
  } catch (error) {
    return [{ check: 'rights', verdict: 'problem', text: explained(error) }]
  }
}

/** Changes nothing, because no revision is below 0, but needs the same rights as if it did. */
function writesNothing(prefix: string): Parameters<typeof TXN.encode>[0] {
  const key = `${prefix}tickets/is anybody there`
  return {
    when: [{ key, that: 'created', is: 'less', revision: 0 }],
    apply: [{ tag: 'put', key, value: '', lease: 0 }],
    otherwise: [{ tag: 'range', key, end: `${prefix}tickets0` }],
  }
}

/** Asks for a short lease, which ends by itself. Its granted length is the one way to learn the election timeout. */
async function shortest(cluster: Cluster): Promise<Finding> {
  const check = 'shortest ttl'
  const id = 1 + Math.floor(Math.random() * (Number.MAX_SAFE_INTEGER - 1))
  const { ttl } = await ask(cluster, LEASE_GRANT, { id, ttl: 1 })
  if (ttl <= LONG_S) {
    return {
      check,
      verdict: 'ok',
      text: `No lease is shorter than ${milliseconds(ttl * 1000)}, which follows from its election timeout.`,
    }
  }
  return {
    check,
    verdict: 'warning',
    text: `etcd grants no lease for less than ${ttl} s, which follows from its election timeout: a lock with a shorter ttl is refused. Lower --election-timeout, to about ten round trips between the members.`,
  }
}

const LONG_S = 5

const CLOCK: Finding = {
  check: 'clock',
  verdict: 'ok',
  text: 'etcd counts intervals and revisions: what the clocks of its machines say does not matter.',
}
