import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { freePort } from './free-port.ts'
import { ensureEtcd } from './install.ts'
import { endServer, hasEnded, isStopped, leftovers, logOf, spawnServer, tail } from './server-process.ts'
import { until } from './until.ts'

export interface EtcdOptions {
  /** `server`: clients check the member's certificate. `mutual`: the member checks theirs, too. Default: no TLS. */
  readonly tls?: 'server' | 'mutual'
  /** The certificate that the member shows. Default: `member`, which is valid. */
  readonly certificate?: 'member' | 'expired'
  /** More arguments, as on the command line: `['--auth-token-ttl', '1']`. */
  readonly args?: readonly string[]
}

/**
 * Arguments for tests in which a process that stands still must not lose its waiters. The shortest lease of this etcd is 15 s, and by
 * default it is 2 s. The store refuses a ttl of less than 12 s there.
 */
export const PATIENT_LEASES: readonly string[] = [
  '--heartbeat-interval',
  '1000',
  '--election-timeout',
  '10000',
]

export interface EtcdServer extends AsyncDisposable {
  readonly port: number
  /** `http://127.0.0.1:<port>`, or `https://localhost:<port>`. */
  readonly url: string
  /** The id of the running process; it changes with `restart`. */
  readonly pid: number
  /** SIGTERM. */
  stop(): Promise<void>
  /** SIGKILL. */
  kill(): Promise<void>
  /** SIGSTOP: the process hangs with its connections open. Resolves once the kernel has stopped it. */
  pause(): Promise<void>
  /** SIGCONT. */
  resume(): void
  /** Stops the process if it runs, and starts it again on the same ports. `empty`: it has lost all its data. */
  restart(options?: { readonly empty?: boolean }): Promise<void>
  /** Sends one request to etcd's JSON gateway: `call('/v3/kv/range', { key: base64('k') })`. */
  call(path: string, body?: object, options?: { readonly token?: string }): Promise<Record<string, unknown>>
  /** Makes root, with this password, and turns authentication on; resolves with a token for `call`. */
  enableAuth(password: string): Promise<string>
  /**
   * How many requests it has answered and how many streams it has opened since its start, by method:
   * `{ Txn: 3, Watch: 1 }`.
   */
  requests(): Promise<Record<string, number>>
  /** How many messages it has received, in streams too: `{ Txn: 3, LeaseKeepAlive: 40 }`. */
  messages(): Promise<Record<string, number>>
  /** The output since the last start. */
  log(): string
  /** Ends the process and removes its folder. May be called again. */
  close(): Promise<void>
}

export interface EtcdCluster extends AsyncDisposable {
  readonly members: readonly EtcdServer[]
  readonly urls: readonly string[]
  /** The member that leads, according to most of the members that answer. Waits for an election. */
  leader(): Promise<EtcdServer>
  /** A member that answers and does not lead. */
  follower(): Promise<EtcdServer>
  close(): Promise<void>
}

/** Starts `etcd` (or what `ETCD` names) as a cluster of one on free loopback ports, in a folder of its own. */
export async function startEtcd(options: EtcdOptions = {}): Promise<EtcdServer> {
  for (let attempt = 1; ; attempt += 1) {
    const member = await newMember('m0', options)
    try {
      await member.launch(member.peer)
      return member.server
    } catch (error) {
      await member.server.close()
      // Another process may have taken the port after we found it free and before the server bound it.
      if (!portWasTaken(error) || attempt === 5) throw error
    }
  }
}

/** Three members (or another number) that know each other. */
export async function startEtcdCluster(
  options: EtcdOptions & { readonly members?: number } = {},
): Promise<EtcdCluster> {
  for (let attempt = 1; ; attempt += 1) {
    const members: Member[] = []
    for (let index = 0; index < (options.members ?? 3); index += 1)
      members.push(await newMember(`m${index}`, options))
    const all = members.map(({ peer }) => peer).join(',')
    const started = await Promise.allSettled(members.map((member) => member.launch(all)))
    const failed = started.find((one) => one.status === 'rejected')
    if (failed === undefined) return clusterOf(members.map(({ server }) => server))
    await Promise.all(members.map(({ server }) => server.close()))
    if (!portWasTaken(failed.reason) || attempt === 5) throw failed.reason
  }
}

/** The text in base64, as the JSON gateway wants it. */
export function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

/** The folder of the tests' certificates; `authority.pem` has signed them all. */
export function certificate(name: string): string {
  return join(fileURLToPath(new URL('etcd-certificates/', import.meta.url)), name)
}

interface Member {
  readonly server: EtcdServer
  /** `name=url`, as etcd wants its cluster described. */
  readonly peer: string
  launch(all: string): Promise<void>
}

async function newMember(name: string, options: EtcdOptions): Promise<Member> {
  const binary = ensureEtcd()
  const folder = mkdtempSync(join(dataFolder(), 'holdfast-etcd-'))
  const port = await freePort()
  const peerUrl = `http://127.0.0.1:${await freePort()}`
  const url = options.tls === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`
  const peer = `${name}=${peerUrl}`
  let running: ChildProcess | undefined
  let cluster = peer
  leftovers.add(discard)

  const server: EtcdServer = {
    port,
    url,
    get pid() {
      return running?.pid as number
    },
    stop,
    kill: () => endServer(running, 'SIGKILL'),
    async pause() {
      signal('SIGSTOP')
      await until('the kernel has stopped etcd', () => isStopped(running?.pid))
    },
    resume: () => signal('SIGCONT'),
    async restart({ empty = false } = {}) {
      await stop()
      if (empty) rmSync(join(folder, 'data'), { recursive: true, force: true })
      await launch(cluster)
    },
    call,
    async enableAuth(password) {
      await call('/v3/auth/user/add', { name: 'root', password })
      await call('/v3/auth/role/add', { name: 'root' })
      await call('/v3/auth/user/grant', { user: 'root', role: 'root' })
      await call('/v3/auth/enable', {})
      return String((await call('/v3/auth/authenticate', { name: 'root', password }))['token'])
    },
    requests: () => counted('grpc_server_started_total'),
    messages: () => counted('grpc_server_msg_received_total'),
    log: () => logOf(folder),
    close,
    [Symbol.asyncDispose]: close,
  }
  return { server, peer, launch }

  async function launch(all: string): Promise<void> {
    cluster = all
    const child = spawnServer(binary, [...addresses(), ...security(options), ...(options.args ?? [])], folder)
    running = child
    try {
      await until('etcd has a leader', () => isReady(child), { everyMs: 25 })
    } catch (error) {
      await endServer(child, 'SIGKILL')
      throw new Error(`etcd did not start on port ${port}: ${tail(logOf(folder))}`, { cause: error })
    }
  }

  function addresses(): string[] {
    const client = options.tls === undefined ? url : `https://127.0.0.1:${port}`
    return [
      ...['--name', name, '--data-dir', join(folder, 'data'), '--logger', 'zap'],
      ...['--listen-client-urls', client, '--advertise-client-urls', url],
      ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
      ...['--initial-cluster', cluster, '--initial-cluster-state', 'new'],
    ]
  }

  async function isReady(child: ChildProcess): Promise<boolean> {
    if (hasEnded(child)) throw new Error(`etcd exited with ${child.exitCode ?? child.signalCode}`)
    try {
      return String((await call('/v3/maintenance/status'))['leader'] ?? '0') !== '0'
    } catch (error) {
      // A member that refuses the client is running.
      return String(error).includes('etcd said')
    }
  }

  async function call(
    path: string,
    body: object = {},
    { token }: { readonly token?: string } = {},
  ): Promise<Record<string, unknown>> {
    const reply = await fetchText(url + path, options, { body: JSON.stringify(body), token })
    const answer = JSON.parse(reply) as Record<string, unknown>
    if (answer['error'] !== undefined) throw new Error(`etcd said: ${answer['error']}`)
    return answer
  }

  async function counted(metric: string): Promise<Record<string, number>> {
    const page = await fetchText(`${url}/metrics`, options)
    const lines = page.matchAll(new RegExp(`^${metric}\\{grpc_method="(\\w+)".*\\} (\\S+)$`, 'gm'))
    const counts: Record<string, number> = {}
    for (const [, method = '', count] of lines) if (Number(count) > 0) counts[method] = Number(count)
    return counts
  }

  function signal(kind: NodeJS.Signals): void {
    if (!running?.kill(kind)) throw new Error(`Expected etcd to be running, got none to send ${kind} to`)
  }

  async function stop(): Promise<void> {
    running?.kill('SIGCONT')
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

/**
 * Data is kept in memory if the system has a folder for it. etcd waits for the disk at each step, and many tests share
 * it.
 */
function dataFolder(): string {
  return existsSync('/dev/shm') ? '/dev/shm' : tmpdir()
}

function clusterOf(members: readonly EtcdServer[]): EtcdCluster {
  async function close(): Promise<void> {
    await Promise.all(members.map((member) => member.close()))
  }
  return {
    members,
    urls: members.map(({ url }) => url),
    leader: () =>
      until('a member leads', async () => (await withLead(members)).find((one) => one.leads)?.member),
    follower: () =>
      until('a member follows', async () => (await withLead(members)).find((one) => !one.leads)?.member),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** The members that answer and know a leader. */
async function withLead(members: readonly EtcdServer[]): Promise<{ member: EtcdServer; leads: boolean }[]> {
  const found = await Promise.all(
    members.map(async (member) => {
      try {
        const status = await member.call('/v3/maintenance/status')
        const { member_id: id } = status['header'] as { member_id?: string }
        // A member that is cut off still reports the leader that it knew before. Only a read shows that it has a leader
        // now.
        await member.call('/v3/kv/range', { key: base64('\0') })
        return status['leader'] === undefined ? [] : [{ member, leads: status['leader'] === id }]
      } catch {
        return []
      }
    }),
  )
  return found.flat()
}

function security({ tls, certificate: shown = 'member' }: EtcdOptions): string[] {
  if (tls === undefined) return []
  return [
    ...['--cert-file', certificate(`${shown}.pem`), '--key-file', certificate(`${shown}.key`)],
    ...(tls === 'mutual' ? ['--client-cert-auth', '--trusted-ca-file', certificate('authority.pem')] : []),
  ]
}

/** A member without a leader keeps its clients waiting, and so does a member that is stopped. */
const REPLY_MS = 6000

/** Rejects after `REPLY_MS` if there is no answer. */
async function fetchText(
  url: string,
  { tls }: EtcdOptions,
  { body, token }: { body?: string; token?: string | undefined } = {},
): Promise<string> {
  const read = (name: string) => readFileSync(certificate(name))
  const request = (tls === undefined ? httpRequest : httpsRequest)(url, {
    method: body === undefined ? 'GET' : 'POST',
    headers: token === undefined ? {} : { authorization: token },
    signal: AbortSignal.timeout(REPLY_MS),
    agent: false,
    ...(tls === undefined
      ? {}
      : { rejectUnauthorized: false, cert: read('client.pem'), key: read('client.key') }),
  })
  request.end(body)
  const [response] = await once(request, 'response')
  return text(response)
}

function portWasTaken(error: unknown): boolean {
  return error instanceof Error && error.message.includes('address already in use')
}
