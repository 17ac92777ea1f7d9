import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { isatty } from 'node:tty'

/**
 * The standard input of the command: inherited, but none if it is a terminal in which this process is a background job. The
 * kernel stops other processes of such a job when they read (SIGTTIN). It does not stop the command, which has a session of
 * its own, so the command would take what is typed for the shell.
 */
export function commandInput(): 'inherit' | 'ignore' {
  return isatty(0) && isInBackground() ? 'ignore' : 'inherit'
}

function isInBackground(): boolean {
  try {
    const [group, foregroundGroup] = process.platform === 'linux' ? groupsOfProc() : groupsOfPs()
    // Not positive: this process has no controlling terminal.
    return foregroundGroup !== undefined && foregroundGroup > 0 && foregroundGroup !== group
  } catch {
    return false
  }
}

/** pid (name) state parent group session terminal foreground-group …; the name may contain anything. */
function groupsOfProc(): readonly (number | undefined)[] {
  const stat = readFileSync('/proc/self/stat', 'utf8')
  const [, , group, , , foregroundGroup] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  return [group, foregroundGroup]
}

function groupsOfPs(): readonly (number | undefined)[] {
  const options = ['-o', 'pgid=', '-o', 'tpgid=', '-p', String(process.pid)]
  return execFileSync('ps', options, { encoding: 'utf8' }).trim().split(/\s+/).map(Number)
}
