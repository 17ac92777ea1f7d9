import { type ChildProcess, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Client } from 'pg'
import { freePort } from './free-port.ts'
import { ensurePostgres } from './install.ts'
import { hasEnded, leftovers, logOf, spawnServer, tail } from './server-process.ts'
import { until } from './until.ts'

export interface PostgresOptions {
  /** Server settings: `{ statement_timeout: '50ms' }`. */
  readonly settings?: Readonly<Record<string, string>>
  /** Lines for pg_hba.conf that come before "trust everybody on loopback": `host all app 127.0.0.1/32 scram-sha-256`. */
  readonly access?: readonly string[]
  /** Makes the server a read-only streaming standby of another server. */
  readonly standbyOf?: PostgresServer
}

export interface PostgresServer extends AsyncDisposable {
  readonly port: number
  /** `postgres://holdfast@127.0.0.1:<port>/holdfast`: the superuser of the cluster, no password asked. */
  readonly url: string
  /** The process id of the running postmaster; it changes with `restart`. */
  readonly pid: number
  /** Ends all sessions, saves the data and exits (a "fast" shutdown). */
  stop(): Promise<void>
  /** SIGKILL for the postmaster and every backend. */
  kill(): Promise<void>
  /** SIGSTOP for all processes of the server: it hangs with its connections open. */
  pause(): Promise<void>
  /** SIGCONT. */
  resume(): void
  /** Stops the server if it runs, and starts it again on the same port and folder. */
  restart(): Promise<void>
  /** Runs statements on a connection of its own, as the superuser. Resolves with the rows of the last statement. */
  sql<Row = Record<string, unknown>>(text: string): Promise<Row[]>
  /** Makes a new empty database of that name; resolves with its URL. */
  createDatabase(name: string): Promise<string>
  /** The output since the last start. */
  log(): string
  /** Ends the processes and removes the folder. May be called again. */
  close(): Promise<void>
}

/** Starts PostgreSQL (or what `POSTGRES` names) with fsync on, on a free loopback port, in a folder of its own. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const binary = ensurePostgres()
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-postgres-'))
  const cluster = join(folder, 'cluster')
  let port = await freePort()
  let running: ChildProcess | undefined
  leftovers.add(discard)
  try {
    giveAway(folder)
    if (options.standbyOf === undefined) copyCluster(binary, cluster)
    else copyOf(options.standbyOf, binary, cluster)
    allow(cluster, options.access)
    running = await launch()
    // The standby answers before it has reached its primary. Until then the primary does not count it.
    if (options.standbyOf !== undefined) await until('the standby is connected to its primary', isStreaming)
  } catch (error) {
    discard()
    throw error
  }

  return {
    get port() {
      return port
    },
    get url() {
      return urlOf('holdfast')
    },
    get pid() {
      return running?.pid as number
    },
    stop,
    kill,
    async pause() {
      const postmaster = assertRunning('SIGSTOP')
      // The postmaster is stopped first. Otherwise it would replace the children that do not answer.
      process.kill(postmaster, 'SIGSTOP')
      await until('the kernel has stopped postgres', () => {
        // The list of children is read each time: the postmaster may have started one more before it was stopped.
        for (const pid of childrenOf(postmaster)) signal(pid, 'SIGSTOP')
        return [postmaster, ...childrenOf(postmaster)].every(isStopped)
      })
    },
    resume: () => wake(assertRunning('SIGCONT')),
    async restart() {
      await stop()
      running = await launch({ samePort: true })
    },
    sql,
    async createDatabase(name) {
      await sql(`create database "${name}"`)
      return urlOf(name)
    },
    log: () => logOf(folder),
    close,
    [Symbol.asyncDispose]: close,
  }

  function urlOf(database: string): string {
    return `postgres://holdfast@127.0.0.1:${port}/${database}`
  }

  async function launch({ samePort = false } = {}): Promise<ChildProcess> {
    for (let attempt = 1; ; attempt += 1) {
      const child = spawnServer(binary, serverArguments(port, cluster, options.settings), folder, {
        ...owner(),
        cwd: folder,
      })
      try {
        await until('postgres answers', () => isReady(child))
        return child
      } catch (error) {
        await end(child)
        // Another process may have taken the port after we found it free and before the server bound it.
        const lostTheRace = logOf(folder).includes('Address already in use')
        if (samePort || !lostTheRace || attempt === 5) {
          throw new Error(`postgres did not start on port ${port}: ${tail(logOf(folder))}`, { cause: error })
        }
        port = await freePort()
      }
    }
  }

  async function isReady(child: ChildProcess): Promise<boolean> {
    if (hasEnded(child)) throw new Error(`postgres exited with ${child.exitCode ?? child.signalCode}`)
    try {
      // Also checks which server answers, because the port may belong to another server by now.
      const [row] = await sql<{ folder: string }>(`select current_setting('data_directory') as folder`)
      return row?.folder === cluster
    } catch {
      return false
    }
  }

  async function isStreaming(): Promise<boolean> {
    const rows = await sql(`select 1 from pg_stat_wal_receiver where status = 'streaming'`)
    return rows.length === 1
  }

  async function sql<Row>(text: string): Promise<Row[]> {
    const client = new Client({ connectionString: urlOf('holdfast'), connectionTimeoutMillis: 10_000 })
    // A server that ends meanwhile reports it here, too. The rejection below is enough.
    client.on('error', () => {})
    await client.connect()
    try {
      const result = await client.query(text)
      return (Array.isArray(result) ? result.at(-1) : result).rows
    } finally {
      await client.end()
    }
  }

  function assertRunning(name: NodeJS.Signals): number {
    if (running === undefined || hasEnded(running)) {
      throw new Error(`Expected postgres to be running, got none to send ${name} to`)
    }
    return running.pid as number
  }

  async function stop(): Promise<void> {
    if (running === undefined || hasEnded(running)) return
    wake(running.pid as number)
    await end(running, 'SIGINT')
  }

  async function kill(): Promise<void> {
    if (running === undefined || hasEnded(running)) return
    await end(running)
  }

  async function close(): Promise<void> {
    await kill()
    discard()
  }

  function discard(): void {
    if (running !== undefined && !hasEnded(running)) {
      for (const pid of [...childrenOf(running.pid as number), running.pid as number]) signal(pid, 'SIGKILL')
    }
    removeSegment(cluster)
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    leftovers.delete(discard)
  }
}

/**
 * A server that was killed leaves its System V shared memory behind, and the kernel has room for a few thousand segments. The
 * seventh line of its pid file names the segment: its key and its id.
 */
function removeSegment(cluster: string): void {
  const path = join(cluster, 'postmaster.pid')
  if (!existsSync(path)) return
  const [, id] = (readFileSync(path, 'utf8').split('\n')[6] ?? '').trim().split(/\s+/)
  if (id !== undefined) spawnSync('ipcrm', ['-m', id])
}

function serverArguments(
  port: number,
  cluster: string,
  settings: Readonly<Record<string, string>> = {},
): string[] {
  const all = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    // The title would overwrite the environment, and a run finds its processes that are left behind by the environment.
    update_process_title: 'off',
    fsync: 'on',
    // In the folder of the cluster, which is removed with it, and not in /dev/shm.
    dynamic_shared_memory_type: 'mmap',
    ...settings,
  }
  return [
    '-D',
    cluster,
    '-p',
    String(port),
    ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ]
}

/**
 * Copies a cluster that is made once for each run, because initdb takes longer than most tests. If two files need the
 * cluster at once, both make it, and the one that is ready first is kept.
 */
function copyCluster(binary: string, cluster: string): void {
  clusters ??= process.env['HOLDFAST_TEST_CLUSTERS'] ?? ownClusters()
  giveAway(clusters)
  const template = join(clusters, 'template')
  if (!existsSync(template)) {
    const fresh = mkdtempSync(join(clusters, 'fresh-'))
    giveAway(fresh)
    makeCluster(binary, join(fresh, 'cluster'))
    try {
      renameSync(fresh, template)
    } catch {
      rmSync(fresh, { recursive: true })
    }
  }
  run('cp', ['-a', join(template, 'cluster'), cluster])
}

let clusters: string | undefined

function ownClusters(): string {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-clusters-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  return folder
}

function makeCluster(binary: string, cluster: string): void {
  run(join(dirname(binary), 'initdb'), [
    ...['-D', cluster, '-U', 'holdfast', '-A', 'trust', '-E', 'UTF8', '--locale=C.UTF-8', '--lc-messages=C'],
    // Small files make the copies quick. A log file has 16 MB otherwise.
    ...['--wal-segsize=1', '--no-sync', '--no-instructions'],
  ])
  // One database beside the template of new ones: each is three hundred files.
  const statements = [
    'alter database postgres rename to holdfast',
    "update pg_database set datistemplate = false where datname = 'template0'",
    'drop database template0',
  ]
  run(binary, ['--single', '-D', cluster, '-c', 'fsync=off', 'template1'], `${statements.join('\n')}\n`)
}

function copyOf(primary: PostgresServer, binary: string, cluster: string): void {
  const from = ['-h', '127.0.0.1', '-p', String(primary.port), '-U', 'holdfast']
  run(join(dirname(binary), 'pg_basebackup'), [
    ...from,
    '-D',
    cluster,
    '-X',
    'stream',
    '-R',
    '-c',
    'fast',
    '--no-sync',
  ])
}

function allow(cluster: string, lines: readonly string[] = []): void {
  const file = join(cluster, 'pg_hba.conf')
  const text = readFileSync(file, 'utf8')
  writeFileSync(file, `${lines.join('\n')}\n${text}`)
}

/** PostgreSQL refuses to run as root. So the user of its package owns the processes and files. */
export function owner(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined
  const id = (flag: string) => Number(spawnSync('id', [flag, 'postgres'], { encoding: 'utf8' }).stdout)
  ownerOfServers ??= { uid: id('-u'), gid: id('-g') }
  return ownerOfServers
}

let ownerOfServers: { readonly uid: number; readonly gid: number } | undefined

/** Gives a folder to that user, for processes of other servers that refuse root, too. */
export function giveAway(folder: string): void {
  const to = owner()
  if (to !== undefined) chownSync(folder, to.uid, to.gid)
}

function run(command: string, args: readonly string[], input = ''): void {
  const result = spawnSync(command, args, {
    ...owner(),
    cwd: tmpdir(),
    encoding: 'utf8',
    input,
    timeout: 60_000,
  })
  if (result.status !== 0) {
    throw new Error(`${command} failed: ${tail(result.stderr ?? '')}`, { cause: result.error })
  }
}

/**
 * Ends a postmaster by a signal, or kills it and its children at once if there is no signal. Resolves when all of them
 * are gone.
 */
async function end(child: ChildProcess, name?: NodeJS.Signals): Promise<void> {
  if (hasEnded(child)) return
  const pid = child.pid as number
  const ended = once(child, 'exit')
  const children = childrenOf(pid)
  if (name === undefined) for (const each of [pid, ...children]) signal(each, 'SIGKILL')
  else signal(pid, name)
  child.ref()
  try {
    await Promise.race([ended, after(20_000)])
    // If a backend were left, the next postmaster would not start.
    await until('every backend is gone', () => !children.some(isAlive))
  } catch (error) {
    for (const each of [pid, ...children]) signal(each, 'SIGKILL')
    throw new Error(`postgres ${pid} was still there 20 s after ${name ?? 'SIGKILL'}`, { cause: error })
  }
}

function after(ms: number): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`${ms} ms have passed`)), ms).unref()
  })
}

/** The backends. Each of them is a session and a process group of its own. */
function childrenOf(parent: number): number[] {
  return processes().flatMap((each) => (each.parent === parent ? [each.pid] : []))
}

/** The children go on before the postmaster. Otherwise it would take the stopped ones for broken. */
function wake(pid: number): void {
  for (const each of [...childrenOf(pid), pid]) signal(each, 'SIGCONT')
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // The process is gone.
  }
}

function isAlive(pid: number): boolean {
  const state = stateOf(pid)
  // A process that has ended stays a zombie until its new parent reaps it.
  return state !== undefined && state !== 'Z'
}

function isStopped(pid: number): boolean {
  // A child that has ended stays a zombie as well while its postmaster is stopped.
  return 'TtZ'.includes(stateOf(pid) ?? 'T')
}

function stateOf(pid: number): string | undefined {
  return processes().find((each) => each.pid === pid)?.state
}

interface ProcessEntry {
  readonly pid: number
  readonly parent: number
  readonly state: string
}

/** A small container may have no ps, and only Linux has /proc. */
function processes(): ProcessEntry[] {
  const lines = existsSync('/proc/self/stat')
    ? readdirSync('/proc').flatMap((name) => (/^\d/.test(name) ? [statLine(name)] : []))
    : spawnSync('ps', ['-axo', 'pid=,state=,ppid='], { encoding: 'utf8' }).stdout.split('\n')
  return lines.map((line) => {
    const [pid, state = '', parent] = line.trim().split(/\s+/)
    return { pid: Number(pid), parent: Number(parent), state: state[0] ?? '' }
  })
}

function statLine(pid: string): string {
  try {
    // The name in parentheses may contain anything, also spaces.
    return readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/ \(.*\) /s, ' ')
  } catch {
    return ''
  }
}
