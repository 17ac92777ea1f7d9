import { type ChildProcess, spawn } from 'node:child_process'

/**
 * Starts a shell that continues a stopped process when this process has ended, in whatever way: a stopped process cannot notice
 * that itself. The shell reads from a pipe that closes with this process. Kill the shell when the process was continued.
 */
export function wakeLater(pid: number): ChildProcess {
  const waker = spawn('/bin/sh', ['-c', 'read -r line; kill -CONT "$1"', 'sh', String(pid)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    // In a group of its own, so that Ctrl-C does not end it.
    detached: true,
  })
  waker.unref()
  waker.on('error', () => {})
  return waker
}

/** By the pid: on Deno 2.9 `child.kill('SIGCONT')` makes `exit` come too early or never. */
export function sendSignal(name: NodeJS.Signals, { pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(pid, name)
  } catch {
    // It has ended, and `exit` is on its way.
  }
}
