import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { endServer, leftovers } from './server-process.ts'

/**
 * A network of its own for some processes. One cable connects it to another one, from where Unix sockets lead to the servers of this
 * machine, and a test can pull the cable. No packet leaves this machine. Our own network does not change: Chromium drops all its
 * requests when an address comes or goes.
 */
export interface Namespace extends AsyncDisposable {
  /** The other end of the cable, as the processes inside see it. */
  readonly host: string
  /** The start of a command line that runs a command inside. */
  readonly exec: readonly string[]
  /** The processes inside reach these ports of 127.0.0.1 at `host` from now on; with `asLocal` at 127.0.0.1, too. */
  expose(ports: readonly number[], options?: { readonly asLocal?: boolean }): Promise<void>
  /** Pulls the cable: packets vanish in both directions, and neither side is told. */
  cut(): void
  mend(): void
}

/** Why this machine has no network namespaces; undefined if it has them. */
export function namespacesMissing(): string | undefined {
  if (process.platform !== 'linux') return 'network namespaces are a part of Linux'
  if (process.getuid?.() !== 0) return 'making a network namespace needs root'
  const name = nameOf('trial')
  // If the root folder is no mount point, as in a chroot, the kernel makes a namespace but lets nobody enter it.
  // A kernel may have no cables.
  const cable = ['link', 'add', 'cable', 'type', 'veth', 'peer', 'name', 'other']
  const made = ip('netns', 'add', name) ?? ip('netns', 'exec', name, 'true') ?? ip('-n', name, ...cable)
  ip('netns', 'delete', name)
  return made === undefined ? undefined : `this machine makes no network namespaces (${made})`
}

let made = 0

export async function startNamespace(): Promise<Namespace> {
  removeStale()
  made += 1
  const [inside, outside] = [nameOf(`${made}-inside`), nameOf(`${made}-outside`)]
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-cable-'))
  const forwarders: ChildProcess[] = []
  const remove = () => {
    for (const forwarder of forwarders) forwarder.kill('SIGKILL')
    ip('netns', 'delete', inside)
    ip('netns', 'delete', outside)
    rmSync(folder, { recursive: true, force: true })
    leftovers.delete(remove)
  }
  leftovers.add(remove)
  must('netns', 'add', inside)
  must('netns', 'add', outside)
  must(
    '-n',
    outside,
    'link',
    'add',
    'cable',
    'address',
    OUTER_MAC,
    'type',
    'veth',
    'peer',
    'name',
    'cable',
    'netns',
    inside,
  )
  must('-n', outside, 'address', 'add', `${OUTER}/30`, 'dev', 'cable')
  must('-n', outside, 'link', 'set', 'cable', 'up')
  must('-n', inside, 'address', 'add', `${INNER}/30`, 'dev', 'cable')
  must('-n', inside, 'link', 'set', 'cable', 'up')
  // Otherwise a process that asks for this address behind a pulled cable hears in a few seconds that nobody answers.
  must('-n', inside, 'neigh', 'replace', OUTER, 'lladdr', OUTER_MAC, 'nud', 'permanent', 'dev', 'cable')
  must('-n', inside, 'link', 'set', 'lo', 'up')
  const forward = async (pairs: readonly string[], exec: readonly string[] = []) => {
    const [command = '', ...args] = [...exec, process.execPath, FORWARDER, ...pairs]
    const forwarder = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    forwarders.push(forwarder)
    const over = new AbortController()
    const signal = AbortSignal.any([over.signal, AbortSignal.timeout(60_000)])
    // A forwarder that cannot listen says why, and ends.
    forwarder.once('exit', (code) => over.abort(new Error(`A forwarder has ended with code ${code}.`)))
    await once(forwarder, 'message', { signal })
  }
  return {
    host: OUTER,
    exec: execIn(inside),
    async expose(ports, { asLocal = false } = {}) {
      const socket = (port: number) => join(folder, `${port}`)
      await forward(ports.map((port) => `${socket(port)}=127.0.0.1:${port}`))
      await forward(
        ports.map((port) => `${OUTER}:${port}=${socket(port)}`),
        execIn(outside),
      )
      if (!asLocal) return
      await forward(
        ports.map((port) => `127.0.0.1:${port}=${OUTER}:${port}`),
        execIn(inside),
      )
    },
    // The other end: an end that is down refuses new connections at once.
    cut: () => must('-n', outside, 'link', 'set', 'cable', 'down'),
    mend: () => must('-n', outside, 'link', 'set', 'cable', 'up'),
    async [Symbol.asyncDispose]() {
      await Promise.all(forwarders.map((forwarder) => endServer(forwarder, 'SIGKILL')))
      remove()
    },
  }
}

const FORWARDER = fileURLToPath(new URL('forwarder.mjs', import.meta.url))
/** The ends of the cable. Each cable is between two networks that nobody else is in, so all have the same addresses. */
const [OUTER, INNER] = ['10.128.0.1', '10.128.0.2']
const OUTER_MAC = '02:00:00:00:00:01'
const PREFIX = 'holdfast-test-'

function execIn(name: string): readonly string[] {
  return ['ip', 'netns', 'exec', name]
}

function nameOf(what: string): string {
  return `${PREFIX}${process.pid}-${what}`
}

/** Removes the namespaces of test runs that were killed. */
function removeStale(): void {
  const { stdout } = spawnSync('ip', ['netns', 'list'], { encoding: 'utf8' })
  for (const [name, pid] of (stdout ?? '').matchAll(/^holdfast-test-(\d+)-\S+/gm)) {
    try {
      process.kill(Number(pid), 0)
    } catch {
      ip('netns', 'delete', name)
    }
  }
}

/** Runs `ip`. Returns what went wrong, if anything did. */
function ip(...args: readonly string[]): string | undefined {
  const { status, stderr, error } = spawnSync('ip', args, { encoding: 'utf8' })
  return status === 0 ? undefined : (error?.message ?? stderr.trim())
}

function must(...args: readonly string[]): void {
  const failure = ip(...args)
  if (failure !== undefined) throw new Error(`ip ${args.join(' ')}: ${failure}`)
}
