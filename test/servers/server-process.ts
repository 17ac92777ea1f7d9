import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Functions that remove the servers and folders of this process. A test run that is aborted must leave none behind. A
 * worker of the runner gets no exit event then: it loses its channel, and ends at once.
 */
export const leftovers: Set<() => void> = new Set()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const discard of leftovers) discard()
  })
}

const setpriv = '/usr/bin/setpriv'

/**
 * Starts a server whose output goes to `server.log` of the folder. The kernel ends the server together with this
 * process.
 */
export function spawnServer(
  binary: string,
  args: readonly string[],
  folder: string,
  options: SpawnOptions = {},
): ChildProcess {
  const output = openSync(join(folder, 'server.log'), 'w')
  // A test process that is killed runs no exit handler. If setpriv is installed, the kernel kills the server with the
  // process.
  const endsWithUs = existsSync(setpriv)
  const [command, ...before] = endsWithUs ? [setpriv, '--pdeathsig', 'KILL', binary] : [binary]
  const child = spawn(command as string, [...before, ...args], {
    ...options,
    // In a group of its own, which Ctrl-C does not reach: this process may still need the server. Without setpriv, Ctrl-C
    // ends the server.
    detached: endsWithUs,
    stdio: ['ignore', output, output],
  })
  closeSync(output)
  child.unref()
  // Without a listener, Node.js would throw the error. `until` reports that the server does not answer.
  child.on('error', () => {})
  return child
}

/** The output of the server of that folder since its last start. */
export function logOf(folder: string): string {
  return readFileSync(join(folder, 'server.log'), 'utf8')
}

/**
 * Sends the signal, and resolves when the process is gone. If it is still there after a minute, kills it and rejects.
 */
export async function endServer(child: ChildProcess | undefined, name: NodeJS.Signals): Promise<void> {
  if (child === undefined || hasEnded(child)) return
  const ended = once(child, 'exit', { signal: AbortSignal.timeout(60_000) })
  child.kill(name)
  child.ref()
  try {
    await ended
  } catch (error) {
    child.kill('SIGKILL')
    throw new Error(`The server ${child.pid} was still there a minute after ${name}`, { cause: error })
  }
}

export function hasEnded(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null
}

/** Whether the kernel has stopped the process after SIGSTOP. */
export function isStopped(pid: number | undefined): boolean {
  if (process.platform !== 'linux') return true
  return /\) [Tt] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
}

/** The last five lines. */
export function tail(text: string): string {
  return text.trim().split('\n').slice(-5).join(' | ')
}
