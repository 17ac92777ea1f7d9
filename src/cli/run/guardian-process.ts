/**
 * The guardian: a small process between `holdfast run` and the command. The guardian starts the command, so a kill or stop of
 * `holdfast run` never leaves the command unguarded. The guardian knows nothing of locks. It gets a deadline with every
 * renewal, ends the command's group when no later deadline comes in time, and kills it at once when `holdfast run` is gone.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { constants } from 'node:os'
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
    const ending: GuardianReport =
      signal === null ? { tag: 'exited', code: code ?? 0 } : { tag: 'signalled', signal }
    void ended(guarding, { group, isSignalled: signal !== null || SIGNALLED.has(code ?? 0) }).then(
      (isEnded) => report(isEnded ? ending : { tag: 'out-of-reach' }),
    )
  })
}

interface EndedCommand {
  readonly group: ProcessGroup
  readonly isSignalled: boolean
}

/** The command has ended. Resolves when the key may go on to another holder; with false if a process may still run. */
async function ended(guarding: Enforcement, { group, isSignalled }: EndedCommand): Promise<boolean> {
  // The signal went to the whole group. A shell dies of it at once, while the program that it has started winds up.
  const left = isSignalled ? await group.ended(() => guarding.ending) : 'ended'
  guarding.stop()
  enforcement = undefined
  if (!guarding.ending) return left === 'ended'
  // After SIGTERM, kill also what the command started: another holder is about to get the key.
  group.signal('SIGKILL')
  return group.gone()
}

/** How shells say that a signal has ended a command. */
const SIGNALLED: ReadonlySet<number> = new Set(Object.values(constants.signals).map((number) => 128 + number))

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
