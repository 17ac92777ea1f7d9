import { type Finding, milliseconds } from '../../base/diagnosis.ts'
import type { KnownMember, MemberStatus } from './grpc/doctor-messages.ts'
import type { KeyValue } from './grpc/messages.ts'

export interface MemberFacts extends MemberStatus {
  /** The median of some requests. */
  readonly roundTripMs: number
  /** All members of the cluster. Empty if the user may not ask for them. */
  readonly known: readonly KnownMember[]
  /** How many members the URL names. */
  readonly named: number
}

/** Each check looks at one thing of one member. Undefined: there is nothing to report. */
export const MEMBER_CHECKS: readonly ((facts: MemberFacts) => Finding | undefined)[] = [
  version,
  role,
  alarms,
  space,
]

function version({ version, known, named }: MemberFacts): Finding {
  const check = 'version'
  const [major = 0, minor = 0, patch = 0] = version.split('.').map((part) => Number.parseInt(part, 10))
  if (major < 3 || (major === 3 && minor < 4)) {
    return {
      check,
      verdict: 'problem',
      text: `etcd ${version} is too old for the store. Update it to 3.4 or newer.`,
    }
  }
  if (major === 3 && minor === 5 && patch < 3) {
    return {
      check,
      verdict: 'warning',
      text: `etcd ${version} may corrupt its data when a member is killed under load. Update it to 3.5.3 or newer.`,
    }
  }
  const fixedIn = major === 3 ? LEASES_KEPT_IN.get(minor) : undefined
  // A single member never becomes an old leader, and a learner never leads.
  const voters = known.length === 0 ? named : known.filter(({ isLearner }) => !isLearner).length
  if (fixedIn !== undefined && patch < fixedIn && voters > 1) {
    return {
      check,
      verdict: 'warning',
      text: `etcd ${version} may end leases that are kept alive when its leader hangs and another one is elected: holders lose their locks early. Update it to 3.${minor}.${fixedIn} or newer.`,
    }
  }
  return { check, verdict: 'ok', text: `etcd ${version}.` }
}

/**
 * By minor version, the first one in which a leader that was replaced revokes no leases any more. Later minor versions never did.
 * https://github.com/etcd-io/etcd/issues/15247
 */
const LEASES_KEPT_IN: ReadonlyMap<number, number> = new Map([
  [4, 31],
  [5, 13],
])

function role({ leader, member, isLearner, roundTripMs }: MemberFacts): Finding {
  const check = 'role'
  if (isLearner) {
    return {
      check,
      verdict: 'warning',
      text: 'A learner, which has no vote and answers no requests. Leave it out until it is promoted.',
    }
  }
  if (leader === 0) {
    return {
      check,
      verdict: 'problem',
      text: 'It knows of no leader, so it grants nothing: most of the members are away, or cannot reach each other.',
    }
  }
  const text = leader === member ? 'It leads' : 'It follows the leader'
  return { check, verdict: 'ok', text: `${text}, and answers in ${milliseconds(roundTripMs)}.` }
}

function alarms({ errors }: MemberFacts): Finding | undefined {
  const check = 'alarms'
  const all = errors.join(' ')
  if (/NOSPACE/.test(all)) {
    return {
      check,
      verdict: 'problem',
      text: 'The alarm NOSPACE is on: etcd takes no writes. Compact and defragment it, raise --quota-backend-bytes if that is not enough, then etcdctl alarm disarm.',
    }
  }
  if (/CORRUPT/.test(all)) {
    return {
      check,
      verdict: 'problem',
      text: 'The alarm CORRUPT is on: the members do not have the same data. Replace the one that differs before anything else.',
    }
  }
  return { check, verdict: 'ok', text: 'No alarm is on.' }
}

function space({ sizeBytes, usedBytes, quotaBytes }: MemberFacts): Finding {
  const check = 'space'
  const quota = quotaBytes || DEFAULT_QUOTA_BYTES
  const of = quotaBytes === 0 ? 'the 2 GB that etcd allows by default' : `its quota of ${megabytes(quota)}`
  if (sizeBytes > quota * NEARLY_FULL) {
    return {
      check,
      verdict: 'warning',
      text: `The database has ${megabytes(sizeBytes)} of ${of}, ${megabytes(usedBytes)} of them in use, and takes no writes when it is full. Set --auto-compaction-retention=1h, and defragment it.`,
    }
  }
  return { check, verdict: 'ok', text: `The database has ${megabytes(sizeBytes)} of ${of}.` }
}

function megabytes(bytes: number): string {
  const size = bytes / 1_000_000
  return size < 10 ? `${size.toFixed(1)} MB` : `${Math.round(size)} MB`
}

/** https://etcd.io/docs/v3.5/dev-guide/limit/ */
const DEFAULT_QUOTA_BYTES = 2 * 1024 ** 3
const NEARLY_FULL = 0.8

/** Findings about the members together. `named` is the number of members in the URL. */
export function togetherOf(seen: readonly MemberFacts[], named: number): readonly Finding[] {
  if (new Set(seen.map(({ cluster }) => cluster)).size > 1) {
    return [
      {
        check: 'members',
        verdict: 'problem',
        text: 'The members belong to different clusters, each of which would grant locks of its own. Name those of one cluster.',
      },
    ]
  }
  const known = seen.find((facts) => facts.known.length > 0)?.known
  if (known === undefined) return []
  const voters = known.filter(({ isLearner }) => !isLearner)
  return [members(voters.length, named), ...quorum(voters.length, seen, named)]
}

function members(voters: number, named: number): Finding {
  const check = 'members'
  if (voters === 1) {
    return { check, verdict: 'ok', text: 'A single member: while it is away, so are the locks.' }
  }
  if (named < voters) {
    return {
      check,
      verdict: 'warning',
      text: `The URL names ${named} of ${voters} members, so nobody asks the others when these are away. Name all.`,
    }
  }
  if (voters % 2 === 0) {
    return {
      check,
      verdict: 'warning',
      text: `${voters} members survive the loss of no more than ${voters - 1} do. Add one, or take one away.`,
    }
  }
  return { check, verdict: 'ok', text: `The URL names all ${voters} members.` }
}

/** Only if the URL names all voters: nothing is known of the other ones. */
function quorum(voters: number, seen: readonly MemberFacts[], named: number): readonly Finding[] {
  const check = 'quorum'
  const answering = new Set(seen.filter(({ isLearner }) => !isLearner).map(({ member }) => member)).size
  if (voters === 1 || named < voters) return []
  const needed = Math.floor(voters / 2) + 1
  const text = `${answering} of ${voters} members answer`
  if (answering < needed)
    return [{ check, verdict: 'problem', text: `${text}, and ${needed} have to. Bring the others back.` }]
  if (answering < voters && answering === needed) {
    return [
      { check, verdict: 'warning', text: `${text}, so none of them may be lost now. Bring the others back.` },
    ]
  }
  return [{ check, verdict: 'ok', text: `${text}: ${answering - needed} more may be lost.` }]
}

/** The first process that uses an etcd writes the fence base, as the time in µs, and nobody changes it afterwards. */
export function fenceBaseOf(pair: KeyValue | undefined): readonly Finding[] {
  if (pair === undefined) return []
  const check = 'fence base'
  const name = JSON.stringify(pair.key)
  const [, from] = /^1 (\d{1,16})$/.exec(pair.value) ?? []
  if (from === undefined) {
    const text = `The etcd key ${name} should hold what fences are counted from, and holds something else, so nobody gets a lock. ${BASE_ADVICE}`
    return [{ check, verdict: 'problem', text }]
  }
  const aheadMs = Number(from) / 1000 - Date.now()
  if (pair.modRevision !== pair.createRevision || aheadMs < FIRST_BASE_MS - Date.now()) {
    const text = `Somebody has changed the etcd key ${name}, which fences are counted from. They may have fallen below those that were given before. ${BASE_ADVICE}`
    return [{ check, verdict: 'problem', text }]
  }
  if (aheadMs < AHEAD_MS) return []
  const text = `The etcd key ${name}, which fences are counted from, is ${milliseconds(aheadMs)} ahead of this machine's clock. The fences go on from there.`
  return [{ check, verdict: 'warning', text }]
}

const BASE_ADVICE =
  'Stop all processes, delete it together with all keys of tickets, and start them. Then the fences go on from the present time.'
/** No version of Holdfast is older: the year 2020. */
const FIRST_BASE_MS = 1_577_836_800_000
const AHEAD_MS = 60_000
