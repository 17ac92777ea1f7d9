import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { type EtcdServer, startEtcd } from '../test/servers/etcd-server.ts'
import { ensureBinary } from '../test/servers/install.ts'
import { type RedisServer, startRedis } from '../test/servers/redis-server.ts'
import type { Fault, Seen } from './fault.ts'
import { libraries } from './libraries.ts'
import type { Kind, Library } from './library.ts'
import { within } from './outcome.ts'

/** What was seen of one library at one fault. `seen` is undefined if the library has nothing of the kind. */
export interface Row {
  readonly fault: Fault
  readonly library: Library
  readonly seen: Seen | undefined
}

interface Wanted {
  readonly faults: readonly Fault[]
  readonly libraries: readonly Library[]
}

/** One after the other, so that none disturbs another one. Each gets new servers and a process of its own. */
export async function comparison(wanted: Wanted, say: (line: string) => void): Promise<readonly Row[]> {
  await ensureBinary('redis-server')
  const rows: Row[] = []
  for (const fault of wanted.faults) {
    for (const library of wanted.libraries.filter(({ kind }) => fault.kinds.includes(kind))) {
      const seen = await withServers(library.kind, (ports) => play(fault, library, ports))
      rows.push({ fault, library, seen })
      const mark = seen === undefined ? '–' : seen.isKept ? '✓' : '✗'
      say(`${mark} ${fault.id.padEnd(15)} ${library.name} (${library.kind}): ${seen?.what ?? 'has none'}`)
    }
  }
  return rows
}

async function withServers<T>(kind: Kind, work: (ports: readonly number[]) => Promise<T>): Promise<T> {
  const servers = await serversOf(kind)
  try {
    return await work(servers.map(({ port }) => port))
  } finally {
    await Promise.all(servers.map((server) => server.close()))
  }
}

async function serversOf(kind: Kind): Promise<readonly (RedisServer | EtcdServer)[]> {
  switch (kind) {
    case 'redis':
      return [await startRedis()]
    case 'redlock': {
      const servers = await Promise.all([startRedis(), startRedis(), startRedis()])
      await Promise.all(servers.map(age))
      return servers
    }
    case 'etcd':
      return [await startEtcd()]
    case 'memory':
      return []
    default:
      return kind satisfies never
  }
}

/** Makes the server look as if it had run for years. Holdfast does not trust a server that has just been started. */
async function age(server: RedisServer): Promise<void> {
  const run = /run_id:(\w+)/.exec(String(await server.command('INFO', 'server')))?.[1] ?? '-'
  await server.command('SET', 'holdfast:since', `${run.slice(0, 12)} ${run} 0000000000001`)
}

async function play(fault: Fault, library: Library, ports: readonly number[]): Promise<Seen | undefined> {
  const program = fileURLToPath(new URL('try.ts', import.meta.url))
  const args = [program, fault.id, String(libraries.indexOf(library)), ports.join(',')]
  const child = spawn(process.execPath, ['--import', 'tsx', ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  let complaint = ''
  const line = new Promise<string>((resolve) => {
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      output += chunk
      if (output.endsWith('\n')) resolve(output)
    })
  })
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    complaint += chunk
  })
  const exited = once(child, 'exit') as Promise<[number | null, string | null]>
  try {
    const first = await within(Promise.race([line, exited]), LONGEST_MS)
    if (first === undefined) return { isKept: false, what: `hangs: no end after ${LONGEST_MS / 1000} s` }
    if (typeof first !== 'string')
      return { isKept: false, what: `the process ends: ${firstErrorIn(complaint)}` }
    const seen = JSON.parse(first) as Seen | null
    if (seen === null) return undefined
    if (fault.id === 'process-ends' && (await within(exited, LONGEST_EXIT_MS)) === undefined)
      return { isKept: false, what: `the process still runs ${LONGEST_EXIT_MS / 1000} s later` }
    return seen
  } finally {
    await kill(child)
  }
}

/** Longer than any fault takes. */
const LONGEST_MS = 60_000
const LONGEST_EXIT_MS = 5000

function firstErrorIn(text: string): string {
  return (
    /^(?:\[?\w*Error\b.*|.*triggerUncaughtException.*)$/m.exec(text)?.[0].slice(0, 100) ?? text.slice(0, 100)
  )
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}
