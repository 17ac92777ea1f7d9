import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../base/thrown.ts'
import { isHoldfastError, type Lease, type Locks } from '../../index.ts'
import type { ParsedArguments, Subcommand } from '../arguments.ts'
import { EXIT, exitCodeOf } from '../exit-codes.ts'
import { monotonicMs } from '../machine-time.ts'
import { findRoom } from '../room.ts'
import { ownerOf } from '../room-text.ts'
import { openLocks, storeOptions, urlOf } from '../store-option.ts'
import { complain } from '../terminal.ts'
import { age, json } from '../text.ts'
import { UsageError } from '../usage-error.ts'
import { deadlineIn } from './deadline.ts'
import { type Ending, Guardian } from './guardian.ts'
import { waitsForItself } from './own-hold.ts'
import { planOf, planOptions, type RunPlan } from './plan.ts'
import { Interrupted, Signals } from './signals.ts'
import { commandInput } from './terminal-input.ts'

export const run: Subcommand = {
  name: 'run',
  usage: '[options] KEY -- COMMAND [ARGUMENTS…]',
  summary: 'Holds a key while a command runs.',
  options: { ...planOptions, ...storeOptions() },
  takesCommand: true,
  details: `The command runs without a shell, in a process group of its own, with
HOLDFAST_KEY, HOLDFAST_FENCE and HOLDFAST_ID in its environment. When the key is
lost, the whole group ends before the store gives the key to another.
A KEY that begins with a dash: holdfast run [options] -- KEY -- COMMAND

Exit codes: the command's own, 128+n when it ended by signal n
   75  not acquired (or what -E says)    69  the store is unavailable or refuses
   76  lost: the command was ended       64  not called as above
  127  no such command                  126  it cannot be executed`,
  async run(given: ParsedArguments): Promise<number> {
    if (process.platform === 'win32')
      throw new UsageError('Expected a system with process groups, got Windows.')
    const plan = planOf(given)
    // Throws where there is no clock that both processes share: deadlines need one.
    monotonicMs()
    const signals = new Signals(leave)
    const guardian = new Guardian()
    try {
      await using locks = await openLocks(await urlOf(given), { label: plan.label })
      await guardian.ready()
      const waiting = new AbortController()
      signals.redirect((name) => interrupt(waiting, name))
      const lease = await take(locks, plan, waiting.signal)
      if (lease === null) {
        complain(await whyBusy(locks, plan))
        return plan.busyCode
      }
      let ending: Ending | undefined
      try {
        ending = await runUnder(lease, { plan, guardian, signals })
        return exitCodeFor(ending, { plan, lease, guardian })
      } finally {
        await giveBack(lease, ending)
      }
    } catch (error) {
      if (error instanceof Interrupted) return error.exitCode
      throw error
    } finally {
      guardian.dismiss()
    }
  },
}

async function giveBack(lease: Lease, ending: Ending | undefined): Promise<void> {
  // Do not release a lost lease: the store that did not renew it will hardly answer now.
  if (lease.state === 'lost') return
  // The command may still run. Its key cannot be renewed, but stays taken until the ttl is over.
  if (ending?.tag === 'unknown') lease.detach()
  else await lease.release()
}

function interrupt(waiting: AbortController, name: NodeJS.Signals): void {
  if (name === 'SIGWINCH') return
  if (waiting.signal.aborted) leave(name)
  waiting.abort(new Interrupted(name))
}

function leave(name: NodeJS.Signals): void {
  if (name !== 'SIGWINCH') process.exit(exitCodeOf(name))
}

/** `null` when the key was not free in time. */
async function take(locks: Locks, plan: RunPlan, signal: AbortSignal): Promise<Lease | null> {
  const { ttlMs: ttl, minHoldMs: minHold, lockDelayMs: lockDelay } = plan
  const options = { ttl, minHold, lockDelay, signal }
  const startedAt = performance.now()
  // Try without waiting first: a store that is away is then an error within seconds, even with an endless wait.
  const lease = await tryToTake(locks, plan, options)
  if (lease !== null || plan.waitMs === 0) return lease
  if (await waitsForItself(locks, plan)) {
    throw new UsageError(
      `Expected a key that this command does not run under already, got ${json(plan.key)}: it would wait for itself.`,
    )
  }
  const wait = Math.max(0, plan.waitMs - (performance.now() - startedAt))
  try {
    return await waitToTake(locks, plan, { ...options, wait })
  } catch (error) {
    if (isHoldfastError(error, 'acquire-timeout')) return null
    throw error
  }
}

type TakeOptions = NonNullable<Parameters<Locks['tryAcquire']>[1]>

function tryToTake(locks: Locks, { key, shape }: RunPlan, options: TakeOptions): Promise<Lease | null> {
  switch (shape.tag) {
    case 'exclusive':
      return locks.tryAcquire(key, options)
    case 'shared':
      return locks.readWrite(key).tryAcquireRead(options)
    case 'permits':
      return locks.semaphore(key, shape.permits).tryAcquire({ ...options, units: shape.units })
    default:
      return shape satisfies never
  }
}

function waitToTake(
  locks: Locks,
  { key, shape }: RunPlan,
  options: TakeOptions & { wait: number },
): Promise<Lease> {
  switch (shape.tag) {
    case 'exclusive':
      return locks.acquire(key, options)
    case 'shared':
      return locks.readWrite(key).acquireRead(options)
    case 'permits':
      return locks.semaphore(key, shape.permits).acquire({ ...options, units: shape.units })
    default:
      return shape satisfies never
  }
}

async function whyBusy(locks: Locks, { key, waitMs }: RunPlan): Promise<string> {
  const within = waitMs === 0 ? '' : ` and was not free within ${age(waitMs)}`
  // The key was taken when it was asked for. If by now the holder is gone or the store is away, or the look takes too long,
  // the line names no holder, which is good enough for people. (In a Redis with three million other keys, finding one takes
  // 0.8 s of SCANs.)
  const finding = findRoom(locks, key).catch(() => undefined)
  const room = await Promise.race([finding, sleep(LOOK_MS, undefined, { ref: false })])
  const [holder, ...others] = room?.holders ?? []
  if (holder === undefined) return `${json(key)} is taken${within}`
  const more = others.length === 0 ? '' : ` and ${others.length} more`
  return `${json(key)} is held by ${ownerOf(holder)}${more} for ${age(holder.heldMs)}${within}`
}

const LOOK_MS = 300

interface GuardedRun {
  readonly plan: RunPlan
  readonly guardian: Guardian
  readonly signals: Signals
}

async function runUnder(lease: Lease, { plan, guardian, signals }: GuardedRun): Promise<Ending> {
  const env = {
    ...process.env,
    HOLDFAST_KEY: lease.key,
    HOLDFAST_FENCE: String(lease.fence),
    HOLDFAST_ID: lease.id,
  }
  // Evicted, or forgotten by the store: another may hold the key already. At the deadline the guardian kills as well.
  lease.signal.addEventListener('abort', () => guardian.kill())
  signals.redirect(forwarder(guardian))
  signals.refuseToStop(() => complain(`not stopped: ${json(lease.key)} would be lost`))
  let known = deadlineIn(lease.remainingMs)
  const renewals = setInterval(
    () => {
      const deadline = deadlineIn(lease.remainingMs)
      if (deadline.monotonicMs - known.monotonicMs < RENEWED_BY_MS) return
      known = deadline
      guardian.extend(deadline)
    },
    Math.min(Math.max(plan.ttlMs / 20, 5), 500),
  )
  try {
    return await guardian.launch(
      { file: plan.file, args: plan.args, env, input: commandInput() },
      { deadline: known, graceMs: plan.graceMs },
    )
  } finally {
    clearInterval(renewals)
    // The command is gone, and the release takes two seconds at most: a signal may end this process.
    signals.redirect(leave)
  }
}

/** A smaller difference is the wall clock's rounding, and no renewal. */
const RENEWED_BY_MS = 5

/** Forwards signals. A second Ctrl-C within two seconds kills the command. */
function forwarder(guardian: Guardian): (name: NodeJS.Signals) => void {
  let interruptedAt = Number.NEGATIVE_INFINITY
  return (name) => {
    if (name !== 'SIGINT') return guardian.signal(name)
    const at = performance.now()
    guardian.signal(at - interruptedAt < TWICE_MS ? 'SIGKILL' : 'SIGINT')
    interruptedAt = at
  }
}

/** Slower ones are meant for the command: a database console takes many. */
const TWICE_MS = 2000

interface EndedRun {
  readonly plan: RunPlan
  readonly lease: Lease
  readonly guardian: Guardian
}

function exitCodeFor(ending: Ending, { plan, lease, guardian }: EndedRun): number {
  switch (ending.tag) {
    case 'not-launched':
      complain(`${json(plan.file)} could not be started (${ending.errno})`)
      return ending.errno === 'ENOENT' ? EXIT.notFound : EXIT.notExecutable
    case 'no-guardian':
      complain('the process that guards the command could not be started')
      return EXIT.noProcess
    case 'unknown':
      complain(
        `the process that guards the command died while it started it: the command may still run. ${json(plan.key)} stays taken for ${age(lease.remainingMs)}.`,
      )
      return EXIT.lost
    case 'exited':
    case 'signalled':
      if (!guardian.ending && lease.state !== 'lost') {
        return ending.tag === 'exited' ? ending.code : exitCodeOf(ending.signal)
      }
      break
    case 'unguarded':
    case 'too-late':
      break
    default:
      ending satisfies never
  }
  complain(`${json(plan.key)} was lost, and the command was ended. ${whyLost(lease)}`)
  return EXIT.lost
}

function whyLost(lease: Lease): string {
  try {
    lease.assertHeld()
    return 'It was not renewed in time, or the process that guards the command died.'
  } catch (error) {
    return messageOf(error)
  }
}
