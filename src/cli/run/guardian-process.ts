/**
 * The guardian: a small process between `holdfast run` and the command. The guardian starts the command, so a kill or stop of
 * `holdfast run` never leaves the command unguarded. The guardian knows nothing of locks. It gets a deadline with every
 * renewal, ends the command's group when no later deadline comes in time, and kills it at once when `holdfast run` is gone.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { whenParentEnds } from '../parent-process.ts'
import { leftMs } from './deadline.ts'
import { Enforcement } from './enforcement.ts'
import type { GuardianOrder, GuardianReport } from './guardian-messages.ts'
import { ProcessGroup } from './process-group.ts'

let enforcement: Enforcement | undefined

process.on('message', (order: GuardianOrder) => {
  switch (order.tag) {
    case 'launch':
      return launch(order)
    case 'extend':
      return enforcement?.extend(order.deadline)
    default:
      order satisfies never
  }
})

// A service manager signals all processes of a service at once. The command ends in its own time and is guarded until then. On SIGUSR1
// Node.js itself would open a port for a debugger.
const IGNORED = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGALRM'] as const
for (const name of IGNORED) process.on(name, () => {})

whenParentEnds(abandon)
report({ tag: 'ready' })

function launch({ command, deadline, graceMs }: Extract<GuardianOrder, { tag: 'launch' }>): void {
  if (leftMs(deadline) <= 0) return report({ tag: 'too-late' })
  const { file, args, env, input } = command
  let child: ChildProcess
  try {
    child = spawn(file, args, { stdio: [input, 'inherit', 'inherit'], detached: true, env })
  } catch (error) {
    // Node throws what it does not expect of a file, such as ETXTBSY and ENOTDIR. It emits ENOENT and EACCES.
    return refuse(error as NodeJS.ErrnoException)
  }
  child.once('error', (error) => {
    if (child.pid === undefined) refuse(error)
  })
  if (child.pid === undefined) return
  // First of all: once this returns the report is in the pipe, where it can be read even if this process dies now.
  report({ tag: 'launched', pid: child.pid })
  const group = new ProcessGroup(child.pid)
  const guarding = new Enforcement(group, { deadline, graceMs, onEnding: () => report({ tag: 'ending' }) })
  enforcement = guarding
  child.once('exit', (code, signal) => {
    guarding.stop()
    enforcement = undefined
    const ending: GuardianReport =
      signal === null ? { tag: 'exited', code: code ?? 0 } : { tag: 'signalled', signal }
    if (!guarding.ending) return report(ending)
    // After SIGTERM, kill also what the command started: another holder is about to get the key.
    group.signal('SIGKILL')
    void group.gone().then((isGone) => report(isGone ? ending : { tag: 'out-of-reach' }))
  })
}

function refuse({ code, message }: NodeJS.ErrnoException): void {
  report({ tag: 'not-launched', errno: code ?? message })
}

function abandon(): never {
  enforcement?.kill()
  process.exit()
}

function report(message: GuardianReport): void {
  // If the channel breaks here, `disconnect` follows.
  if (process.connected) process.send?.(message, () => {})
}
