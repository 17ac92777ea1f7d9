import type { Finding } from '../../base/diagnosis.ts'
import {
  clock,
  counted,
  eviction,
  lastFence,
  memory,
  NO_CONFIG,
  publishing,
  type ServerCheck,
  type ServerFacts,
  saving,
  topology,
  version,
} from '../redis/server/doctor-checks.ts'

/**
 * The checks of a server that votes: those of a single server, except that role and durability mean something else for a vote.
 */
export const VOTER_CHECKS: readonly ServerCheck[] = [
  visibility,
  version,
  independence,
  eviction,
  memory,
  durability,
  saving,
  publishing,
  lastFence,
  clock,
]

function visibility({ info }: ServerFacts): Finding | undefined {
  if (info.size > 0) return undefined
  return {
    check: 'settings',
    verdict: 'warning',
    text: 'The user may not ask for INFO, so a restart that loses only the last votes and a promoted replica go unnoticed, and version, eviction and role were not looked at. Grant it +info, and +config|get for the rest.',
  }
}

function independence(facts: ServerFacts): Finding | undefined {
  const { info } = facts
  const check = 'role'
  if (info.get('cluster_enabled') === '1') return topology(facts)
  if (info.get('role') === 'slave') {
    return {
      check,
      verdict: 'problem',
      text: `The server is a replica of ${info.get('master_host')}:${info.get('master_port')}, which makes two votes of one. List masters only.`,
    }
  }
  if (info.get('role') !== 'master') return undefined
  const replicas = Number(info.get('connected_slaves') ?? 0)
  if (replicas === 0) return { check, verdict: 'ok', text: 'A master that depends on no other.' }
  return {
    check,
    verdict: 'warning',
    text: `The master has ${counted(replicas, 'replica')}. One that takes its place has not heard of the last votes, so its votes do not count for \`maxTtl\`. Let no fail-over happen behind the address.`,
  }
}

function durability(facts: ServerFacts): Finding | undefined {
  const { info, settings } = facts
  const appends = info.get('aof_enabled')
  const fsync = settings.get('appendfsync')
  if (appends === undefined) return undefined
  const check = 'persistence'
  if (appends === '1' && fsync === undefined) {
    return {
      check,
      verdict: 'warning',
      text: `The doctor could not look at appendfsync, because ${NO_CONFIG} Unless it is always, the votes do not count for \`maxTtl\` after a restart.`,
    }
  }
  const text =
    appends === '1' && fsync === 'always'
      ? 'Every vote is on disk before it is given: after a restart the votes count at once.'
      : 'After a restart the votes do not count for `maxTtl`. With appendonly yes and appendfsync always they would at once, for a disk write for each lock.'
  return { check, verdict: 'ok', text }
}
