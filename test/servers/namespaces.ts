import { spawnSync } from 'node:child_process'
import { leftovers } from './server-process.ts'

/**
 * A network of its own for some processes. One cable connects it to ours, and a test can pull the cable. No packet
 * leaves this machine.
 */
export interface Namespace extends AsyncDisposable {
  /** The address of our side, as the processes inside see it. */
  readonly host: string
  /** The start of a command line that runs a command inside. */
  readonly exec: readonly string[]
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
  const made = ip('netns', 'add', name) ?? ip('netns', 'exec', name, 'true')
  ip('netns', 'delete', name)
  return made === undefined ? undefined : `this machine makes no network namespaces (${made})`
}

let made = 0

export async function startNamespace(): Promise<Namespace> {
  removeStale()
  made += 1
  const name = nameOf(String(made))
  const [outer, inner] = [`hf${process.pid % 1_000_000}o${made}`, `hf${process.pid % 1_000_000}i${made}`]
  // A subnet of four addresses. It depends on the process id, because other tests have subnets at the same time.
  const subnet = `10.${128 + (process.pid % 100)}.${Math.floor(process.pid / 100) % 256}`
  const [host, guest] = [`${subnet}.${4 * made + 1}`, `${subnet}.${4 * made + 2}`]
  const remove = () => {
    ip('netns', 'delete', name)
    ip('link', 'delete', outer)
    leftovers.delete(remove)
  }
  leftovers.add(remove)
  const inside = ['ip', 'netns', 'exec', name]
  must('netns', 'add', name)
  must('link', 'add', outer, 'type', 'veth', 'peer', 'name', inner)
  must('link', 'set', inner, 'netns', name)
  must('address', 'add', `${host}/30`, 'dev', outer)
  must('link', 'set', outer, 'up')
  must('-n', name, 'address', 'add', `${guest}/30`, 'dev', inner)
  must('-n', name, 'link', 'set', inner, 'up')
  must('-n', name, 'link', 'set', 'lo', 'up')
  return {
    host,
    exec: inside,
    cut: () => must('-n', name, 'link', 'set', inner, 'down'),
    mend: () => must('-n', name, 'link', 'set', inner, 'up'),
    async [Symbol.asyncDispose]() {
      remove()
    },
  }
}

const PREFIX = 'holdfast-test-'

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
