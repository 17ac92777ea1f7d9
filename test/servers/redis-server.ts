import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from './free-port.ts'
import { ensureBinary } from './install.ts'
import { type RespValue, sendCommand } from './resp.ts'
import { endServer, hasEnded, isStopped, leftovers, logOf, spawnServer, tail } from './server-process.ts'
import { until } from './until.ts'

export interface RedisOptions {
  /**
   * Append-only file with fsync on every write, so that a restart keeps every write that was answered. Default: nothing
   * is kept.
   */
  readonly appendOnly?: boolean
  /** The default user's password. */
  readonly password?: string
  /** ACL rules, one user each: `'app on >secret ~lock:* &lock:* +evalsha +eval'`. */
  readonly users?: readonly string[]
  /** Makes the server a read-only replica of a server on this machine. It is ready once the link is up. */
  readonly replicaOf?: { readonly port: number; readonly password?: string }
  /**
   * Makes the server a member of a cluster, with a free port for its bus. The usual port, ten thousand beyond the other
   * one, may not exist.
   */
  readonly isMember?: boolean
  /** More arguments, as on the command line: `['--maxmemory', '2mb']`. */
  readonly args?: readonly string[]
  /**
   * The lines of a configuration file, for a server that has to rewrite it: a Sentinel. The file survives a restart.
   */
  readonly config?: readonly string[]
}

export interface RedisServer extends AsyncDisposable {
  readonly port: number
  /** `redis://127.0.0.1:<port>`, with the default user's password if there is one. */
  readonly url: string
  /** The id of the running process; it changes with `restart`. */
  readonly pid: number
  /** False once the process has ended, and while it is paused. A server that is only slow is running. */
  readonly isRunning: boolean
  /** SIGTERM: the server saves its data if it keeps any, closes its connections and exits. */
  stop(): Promise<void>
  /** SIGKILL. */
  kill(): Promise<void>
  /** SIGSTOP: the server hangs with its connections open. Resolves once the kernel has stopped it. */
  pause(): Promise<void>
  /** SIGCONT. */
  resume(): void
  /** Stops the server if it runs, and starts it again on the same port and folder. */
  restart(): Promise<void>
  /** Sends one command on a connection of its own, as the default user. */
  command(...args: readonly (string | number)[]): Promise<RespValue>
  /** For a replica: resolves once it has all writes that its master has received so far. */
  follows(master: RedisServer): Promise<void>
  /**
   * How many calls the server has received since its start or `CONFIG RESETSTAT`, by lower-case command:
   * `{ evalsha: 3, 'config|get': 1 }`.
   */
  commandStats(): Promise<Record<string, number>>
  /** The output since the last start. */
  log(): string
  /** Ends the process and removes its folder. May be called again. */
  close(): Promise<void>
}

const MOST_ATTEMPTS = 10

/** Starts `redis-server` (or what `REDIS_SERVER` names) on a free loopback port, in a folder of its own. */
export async function startRedis(options: RedisOptions = {}): Promise<RedisServer> {
  const binary = ensureBinary('redis-server')
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-redis-'))
  const { password, config } = options
  if (config !== undefined) writeFileSync(join(folder, CONFIG_FILE), `${config.join('\n')}\n`)
  let [port, busPort] = [await freePort(), await freePort()]
  let running: ChildProcess | undefined
  let isPaused = false
  leftovers.add(discard)
  try {
    running = await launch()
  } catch (error) {
    discard()
    throw error
  }

  const self: RedisServer = {
    get port() {
      return port
    },
    get url() {
      return password === undefined
        ? `redis://127.0.0.1:${port}`
        : `redis://:${encodeURIComponent(password)}@127.0.0.1:${port}`
    },
    get pid() {
      return running?.pid as number
    },
    get isRunning() {
      return running !== undefined && !hasEnded(running) && !isPaused
    },
    stop,
    kill: () => endServer(running, 'SIGKILL'),
    async pause() {
      signal('SIGSTOP')
      isPaused = true
      await until('the kernel has stopped redis-server', () => isStopped(running?.pid))
    },
    resume() {
      signal('SIGCONT')
      isPaused = false
    },
    async restart() {
      await stop()
      running = await launch({ samePort: true })
    },
    command,
    async follows(master) {
      const field = async (of: RedisServer, name: string): Promise<number> => {
        const info = String(await of.command('INFO', 'replication'))
        return Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1])
      }
      const told = await field(master, 'master_repl_offset')
      await until('the replica has it', async () => (await field(self, 'slave_repl_offset')) >= told)
    },
    async commandStats() {
      const text = String(await command('INFO', 'commandstats'))
      const lines = text.matchAll(/^cmdstat_(.+?):calls=(\d+)/gm)
      return Object.fromEntries(Array.from(lines, ([, name, calls]) => [name, Number(calls)]))
    },
    log: () => logOf(folder),
    close,
    [Symbol.asyncDispose]: close,
  }
  return self

  async function launch({ samePort = false } = {}): Promise<ChildProcess> {
    for (let attempt = 1; ; attempt += 1) {
      const child = spawnServer(binary, serverArguments({ port, busPort, folder }, options), folder)
      try {
        await until('redis-server answers', () => isReady(child))
        return child
      } catch (error) {
        await endServer(child, 'SIGKILL')
        // Another process may have taken the port after we found it free and before the server bound it.
        const lostTheRace = logOf(folder).includes('Address already in use')
        if (!lostTheRace || attempt === MOST_ATTEMPTS) {
          throw new Error(`redis-server did not start on port ${port}: ${tail(logOf(folder))}`, {
            cause: error,
          })
        }
        // A connection may have taken the port. If that is so, the port is free again when the connection ends.
        if (samePort) await new Promise((resolve) => setTimeout(resolve, 500))
        else [port, busPort] = [await freePort(), await freePort()]
      }
    }
  }

  async function isReady(child: ChildProcess): Promise<boolean> {
    if (hasEnded(child)) throw new Error(`redis-server exited with ${child.exitCode ?? child.signalCode}`)
    try {
      // Also checks which server answers, because the port may belong to another server by now.
      const info = String(await command('INFO'))
      if (!info.includes(`process_id:${child.pid}\r`) || info.includes('loading:1\r')) return false
      return options.replicaOf === undefined || info.includes('master_link_status:up')
    } catch {
      return false
    }
  }

  function command(...args: readonly (string | number)[]): Promise<RespValue> {
    return sendCommand({ port, password }, args)
  }

  function signal(name: NodeJS.Signals): void {
    if (!running?.kill(name))
      throw new Error(`Expected redis-server to be running, got none to send ${name} to`)
  }

  async function stop(): Promise<void> {
    running?.kill('SIGCONT')
    isPaused = false
    await endServer(running, 'SIGTERM')
  }

  async function close(): Promise<void> {
    await endServer(running, 'SIGKILL')
    discard()
  }

  function discard(): void {
    running?.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
    leftovers.delete(discard)
  }
}

function serverArguments({ port, busPort, folder }: Place, options: RedisOptions): string[] {
  const { appendOnly = false, password, users = [], replicaOf, isMember = false, args = [], config } = options
  return [
    ...(config === undefined ? [] : [join(folder, CONFIG_FILE)]),
    ...['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', ''],
    // The title would overwrite the environment, and a run finds its processes that are left behind by the environment.
    ...['--set-proc-title', 'no'],
    // Otherwise a master would wait five seconds for more replicas before it sends the first copy.
    ...['--repl-diskless-sync-delay', '0'],
    ...(appendOnly ? ['--appendonly', 'yes', '--appendfsync', 'always'] : []),
    ...(password === undefined ? [] : ['--requirepass', password]),
    ...users.flatMap((rules) => ['--user', ...rules.split(' ')]),
    ...(replicaOf === undefined ? [] : ['--replicaof', '127.0.0.1', String(replicaOf.port)]),
    ...(replicaOf?.password === undefined ? [] : ['--masterauth', replicaOf.password]),
    ...(isMember ? ['--cluster-enabled', 'yes', '--cluster-port', String(busPort)] : []),
    ...args,
  ]
}

interface Place {
  readonly port: number
  readonly busPort: number
  readonly folder: string
}

const CONFIG_FILE = 'server.conf'
