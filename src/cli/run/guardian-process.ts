/**
 * The guardian: a small process between `holdfast run` and the command. It starts the command, so there is no moment at
 * which the command runs and nobody but a process that may be killed or stopped knows of it. It knows nothing of locks:
 * it gets a deadline with every renewal, ends the command's group when no later one came in time, and kills it at once
 * when `holdfast run` is gone.
 */
import { spawn } from 'node:child_process'
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

// The end of the channel is the end of `holdfast run`, whatever killed it; the kernel tells.
process.on('disconnect', abandon)

// Whoever stops a service signals all its processes at once. The command is to end in its own time, guarded.
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const) process.on(name, () => {})

// It may have ended while this process was starting, and nobody was there to hear of it.
if (!process.connected) abandon()
report({ tag: 'ready' })

function launch({ command, deadline, graceMs }: Extract<GuardianOrder, { tag: 'launch' }>): void {
  if (leftMs(deadline) <= 0) return report({ tag: 'too-late' })
  const { file, args, env, input } = command
  const child = spawn(file, args, { stdio: [input, 'inherit', 'inherit'], detached: true, env })
  child.once('error', (error: NodeJS.ErrnoException) => {
    if (child.pid === undefined) report({ tag: 'not-launched', errno: error.code ?? error.message })
  })
  if (child.pid === undefined) return
  // Before anything else: it is in the pipe when this returns, and is read from there even if this process is dead by then.
  report({ tag: 'launched', pid: child.pid })
  const group = new ProcessGroup(child.pid)
  const guarding = new Enforcement(group, { deadline, graceMs, onEnding: () => report({ tag: 'ending' }) })
  enforcement = guarding
  child.once('exit', (code, signal) => {
    // Who was told to end takes along what it started: others are about to get the key.
    if (guarding.ending) group.signal('SIGKILL')
    guarding.stop()
    enforcement = undefined
    report(signal === null ? { tag: 'exited', code: code ?? 0 } : { tag: 'signalled', signal })
  })
}

function abandon(): never {
  enforcement?.kill()
  process.exit()
}

function report(message: GuardianReport): void {
  // A channel that breaks at this moment is heard of by `disconnect`.
  if (process.connected) process.send?.(message, () => {})
}
