import { type ClockReading, clockFinding, type Finding, milliseconds } from '../../../base/diagnosis.ts'
import { FENCE_ADVICE } from './failures.ts'

/** The facts that a server reports about itself. */
export interface ServerFacts {
  /** The fields of `INFO`; empty if the user may not ask for them. */
  readonly info: ReadonlyMap<string, string>
  /** Settings by name, without those that the user may not see. */
  readonly settings: ReadonlyMap<string, string>
  /** Undefined if the user may not ask for it. */
  readonly clock: ClockReading | undefined
  readonly isReplica: boolean
  /** Whether the doctor was asked to look as a user that may only read. */
  readonly readOnly: boolean
  readonly setting: ServerSetting
  /** The stored last fences that could be read, by the names of their Redis keys. */
  readonly lastFences: ReadonlyMap<string, KeptFence>
  /** Who else has keys there, as far as SCAN shows: how their names begin, and whether these are locks of Holdfast. */
  readonly tenants: ReadonlyMap<string, 'locks' | 'other'>
  /** Whether the user may not send messages. */
  readonly isMute: boolean
}

export interface KeptFence {
  /** Undefined if the Redis key is missing, null if it holds no text. */
  readonly kept: string | null | undefined
  /** The largest fence of a holder, as far as holders were looked at. */
  readonly held: bigint | undefined
}

/** A server by itself, or one of several of which Sentinels or a cluster make one the master. */
export type ServerSetting = 'alone' | 'sentinel' | 'cluster'

export type ServerCheck = (facts: ServerFacts) => Finding | undefined

/** Each check looks at one thing, and returns nothing if there is nothing to report. */
export const SERVER_CHECKS: readonly ServerCheck[] = [
  visibility,
  version,
  topology,
  eviction,
  memory,
  persistence,
  saving,
  isolation,
  publishing,
  tenants,
  lastFence,
  clock,
]

function visibility({ info }: ServerFacts): Finding | undefined {
  if (info.size > 0) return undefined
  return {
    check: 'settings',
    verdict: 'warning',
    text: 'The user may not ask for INFO, so version, eviction, persistence and role were not looked at. Run the doctor as a user that has +info and +config|get.',
  }
}

export function version({ info, setting }: ServerFacts): Finding | undefined {
  const check = 'version'
  const valkey = info.get('valkey_version')
  const redis = info.get('redis_version')
  if (valkey !== undefined) return { check, verdict: 'ok', text: `Valkey ${valkey}.` }
  if (redis === undefined) return undefined
  const [major = 0, minor = 0] = redis.split('.').map(Number)
  if (major < 6 || (major === 6 && minor < 2)) {
    return {
      check,
      verdict: 'problem',
      text: `Redis ${redis} is too old for the store's scripts. Update it to 6.2 or newer.`,
    }
  }
  if (major < 7 && setting === 'cluster') {
    return {
      check,
      verdict: 'warning',
      text: `Redis ${redis} sends each message to every server of the cluster. Update it to 7 or newer.`,
    }
  }
  return { check, verdict: 'ok', text: `Redis ${redis}.` }
}

export function topology({ info, isReplica, readOnly, setting }: ServerFacts): Finding | undefined {
  const check = 'role'
  if (info.get('cluster_enabled') === '1' && setting !== 'cluster') {
    return {
      check,
      verdict: 'problem',
      text: 'The server is part of a cluster. Connect to it as one (redis+cluster://…), or use a single server.',
    }
  }
  if (isReplica) {
    const master = info.has('master_host')
      ? `${info.get('master_host')}:${info.get('master_port')}`
      : 'another server'
    if (setting === 'alone') {
      if (readOnly && info.get('master_link_status') !== 'down') {
        return {
          check,
          verdict: 'warning',
          text: `The server is a replica of ${master}. What that one did in the last moments may be missing in what is shown here.`,
        }
      }
      return {
        check,
        verdict: 'problem',
        text: `The server is a replica of ${master} and takes no writes. Connect to that one, or let Sentinels name it (redis+sentinel://…).`,
      }
    }
    if (!info.has('role')) return undefined
    if (info.get('master_link_status') !== 'up') {
      return {
        check,
        verdict: 'warning',
        text: `The server is a replica that has lost its master ${master}, so it knows nothing of new locks. Look at its log.`,
      }
    }
    return { check, verdict: 'ok', text: 'A replica that follows its master.' }
  }
  if (info.get('role') !== 'master') return undefined
  const replicas = Number(info.get('connected_slaves') ?? 0)
  if (replicas > 0) return { check, verdict: 'ok', text: `The master, with ${counted(replicas, 'replica')}.` }
  if (setting === 'alone') return { check, verdict: 'ok', text: 'A single server.' }
  return {
    check,
    verdict: setting === 'sentinel' ? 'problem' : 'warning',
    text: 'The master has no replica that could take over. Start one, or repair its connection.',
  }
}

export function eviction({ info }: ServerFacts): Finding | undefined {
  const check = 'eviction'
  const policy = info.get('maxmemory_policy')
  if (policy === undefined) return undefined
  if (policy === 'noeviction') return { check, verdict: 'ok', text: 'No key is evicted.' }
  const change = 'Set maxmemory-policy noeviction, or use a server of its own for locks.'
  if (info.get('maxmemory') === '0') {
    return {
      check,
      verdict: 'warning',
      text: `With maxmemory-policy ${policy} locks would vanish once a maxmemory is set. ${change}`,
    }
  }
  return {
    check,
    verdict: 'problem',
    text: `With maxmemory-policy ${policy} locks vanish when the memory is full, while their holders work. ${change}`,
  }
}

export function memory({ info }: ServerFacts): Finding | undefined {
  const most = Number(info.get('maxmemory') ?? 0)
  const used = Number(info.get('used_memory') ?? 0)
  if (most === 0 || used / most < NEARLY_FULL) return undefined
  return {
    check: 'memory',
    verdict: used < most ? 'warning' : 'problem',
    text: `The server uses ${Math.round((used / most) * 100)} % of its maxmemory, and grants no lock when it is full. Raise maxmemory, or remove what is not needed.`,
  }
}

function persistence({ info, settings }: ServerFacts): Finding | undefined {
  const check = 'persistence'
  if (!info.has('aof_enabled')) return undefined
  const change = 'Set appendonly yes and appendfsync always if no lock may be forgotten, or check the fence.'
  if (info.get('aof_enabled') === '1') {
    const fsync = settings.get('appendfsync')
    if (fsync === 'always')
      return { check, verdict: 'ok', text: 'Every grant is on disk before it is answered.' }
    if (fsync === undefined) {
      return {
        check,
        verdict: 'warning',
        text: `The doctor could not look at appendfsync, because ${NO_CONFIG} A server that crashes may forget the last locks. ${change}`,
      }
    }
    const loss = fsync === 'everysec' ? 'the last second of' : 'half a minute of'
    return {
      check,
      verdict: 'warning',
      text: `A server that crashes forgets ${loss} locks, whose holders are told at their next renewal. ${change}`,
    }
  }
  const save = settings.get('save')
  if (save === undefined) {
    return {
      check,
      verdict: 'warning',
      text: `The doctor could not look for snapshots, because ${NO_CONFIG} A server that restarts forgets the locks since its last snapshot, or all locks. ${change}`,
    }
  }
  return {
    check,
    verdict: 'warning',
    text: `A server that restarts forgets ${save === '' ? 'all locks' : 'the locks since its last snapshot'}, whose holders are told at their next renewal. ${change}`,
  }
}

export function saving({ info, settings }: ServerFacts): Finding | undefined {
  const append = info.get('aof_enabled') === '1' && info.get('aof_last_write_status') === 'err'
  const stops = settings.get('stop-writes-on-bgsave-error') !== 'no'
  if (!append && !(stops && info.get('rdb_last_bgsave_status') === 'err')) return undefined
  return {
    check: 'disk',
    verdict: 'problem',
    text: 'The server cannot save to its disk, and refuses to write for that. Look at its log.',
  }
}

/** Whether a master that is cut off stops granting by itself. */
function isolation({ info, settings, setting }: ServerFacts): Finding | undefined {
  const check = 'isolation'
  const least = settings.get('min-replicas-to-write')
  if (setting !== 'sentinel' || info.get('role') !== 'master') return undefined
  if (least === undefined) {
    return {
      check,
      verdict: 'warning',
      text: `The doctor could not look at min-replicas-to-write, because ${NO_CONFIG}`,
    }
  }
  if (Number(least) > 0) {
    return {
      check,
      verdict: 'ok',
      text: `It takes no writes with fewer than ${counted(Number(least), 'replica')}.`,
    }
  }
  return {
    check,
    verdict: 'warning',
    text: 'A master that is cut off goes on granting to who is cut off with it. Set min-replicas-to-write 1 and min-replicas-max-lag 10 on every server, or the option `replicas` of the store.',
  }
}

export function publishing({ isMute }: ServerFacts): Finding | undefined {
  if (!isMute) return undefined
  return {
    check: 'publishing',
    verdict: 'warning',
    text: 'The user may not send messages, so waiters ask for their turn every two seconds instead of being told. Grant it +publish and the channels.',
  }
}

function tenants({ info, tenants }: ServerFacts): Finding | undefined {
  const databases = [...info.keys()].filter((name) => /^db\d+$/.test(name))
  const names = Array.from(tenants, ([name, kind]) =>
    kind === 'locks' ? `${name} (locks of Holdfast)` : name,
  )
  if (names.length === 0 && databases.length < 2) return undefined
  const more = names.length > MOST_SHOWN ? [`${names.length - MOST_SHOWN} more`] : []
  const who = names.length === 0 ? '' : ` under ${[...names.slice(0, MOST_SHOWN), ...more].join(', ')}`
  const where = databases.length < 2 ? '' : `, in ${databases.length} databases`
  return {
    check: 'tenants',
    verdict: 'warning',
    text: `Others have keys on this server${who}${where}. What fills its memory, blocks it or flushes it stops the locks, too. Give the locks a server of their own.`,
  }
}

export function lastFence({ lastFences, clock }: ServerFacts): Finding | undefined {
  const check = 'last fence'
  const fences = Array.from(lastFences, ([name, fence]) => ({ name: JSON.stringify(name), ...fence }))
  const broken = fences.find(({ kept }) => kept !== undefined && !isFence(kept))
  if (broken !== undefined) {
    return {
      check,
      verdict: 'problem',
      text: `The Redis key ${broken.name} should hold the last fence, a number below 9000000000000000, and holds something else, so nobody gets a lock. ${FENCE_ADVICE}`,
    }
  }
  const lowered = fences.find(({ kept, held = 0n }) => typeof kept === 'string' && BigInt(kept) < held)
  if (lowered !== undefined) {
    return {
      check,
      verdict: 'problem',
      text: `The Redis key ${lowered.name} keeps the last fence ${lowered.kept}, and a holder has the higher one ${lowered.held}. Somebody wrote it, so fences may fall if the clock of the server is set back. ${FENCE_ADVICE}`,
    }
  }
  const now = Date.now() + (clock?.aheadMs ?? 0)
  const missing = fences.filter(({ kept, held }) => kept === undefined && held !== undefined)
  const [gone] = missing.sort((one, other) => Number((other.held ?? 0n) - (one.held ?? 0n)))
  if (gone !== undefined) {
    const falls = Number(gone.held) / 1000 > now + CLOCK_ERROR_MS
    return {
      check,
      verdict: falls ? 'problem' : 'warning',
      text: `The Redis key ${gone.name} with the last fence is missing, though a holder has the fence ${gone.held}. Somebody deleted it. ${
        falls
          ? 'That fence is ahead of the clock of the server, so the next one is lower. Set the key to that fence.'
          : 'The fences go on from the time of the server.'
      }`,
    }
  }
  const aheadByMs = Math.max(0, ...fences.map(({ kept }) => Number(kept ?? 0) / 1000 - now))
  if (aheadByMs < FENCES_AHEAD_MS) return undefined
  return {
    check,
    verdict: 'warning',
    text: `The last fence is ${milliseconds(aheadByMs)} ahead of the clock of the server, which was set back, or somebody wrote it. The fences go on from there; let NTP set the clock.`,
  }
}

/** As last.lua decides it. */
function isFence(text: string | null): boolean {
  return typeof text === 'string' && /^(?:\d{1,15}|[0-8]\d{15})$/.test(text)
}

export function clock(facts: ServerFacts): Finding {
  if (facts.clock !== undefined) return clockFinding(facts.clock)
  return {
    check: 'clock',
    verdict: 'warning',
    text: 'The doctor could not look at the clock of the server, because the user may not ask for TIME (+time).',
  }
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}

export const NO_CONFIG = 'the user may not ask for CONFIG GET (+config|get).'
const NEARLY_FULL = 0.9
const FENCES_AHEAD_MS = 60_000
/** More than the clock is misread by. */
const CLOCK_ERROR_MS = 1000
const MOST_SHOWN = 8
