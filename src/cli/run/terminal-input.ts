import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { isatty } from 'node:tty'

/**
 * What the command gets as its standard input: ours; but nothing at all when that is the terminal, and we are a job in its
 * background. Every other process of the job would be stopped (SIGTTIN) when it reads. The command has a session of its
 * own, where the kernel does not do that, so it would take what somebody types for the shell.
 */
export function commandInput(): 'inherit' | 'ignore' {
  return isatty(0) && isInBackground() ? 'ignore' : 'inherit'
}

function isInBackground(): boolean {
  try {
    const [group, foregroundGroup] = process.platform === 'linux' ? groupsOfProc() : groupsOfPs()
    // Not positive: there is no terminal that controls us.
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
