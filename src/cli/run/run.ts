import { messageOf } from '../../base/thrown.ts'
import type { Lease } from '../../index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT, exitCodeOf } from '../exit-codes.ts'
import { Interrupted } from '../interruption.ts'
import { monotonicMs } from '../machine-time.ts'
import { holdsWith } from '../outer-holds.ts'
import { placeOf } from '../store-option.ts'
import { complain } from '../terminal.ts'
import { age, json } from '../text.ts'
import { UsageError } from '../usage-error.ts'
import { deadlineIn } from './deadline.ts'
import { type Ending, Guardian } from './guardian.ts'
import { planOf, type RunPlan } from './plan.ts'
import { Signals } from './signals.ts'
import { commandInput } from './terminal-input.ts'

export async function runCommand(given: ParsedArguments): Promise<number> {
  if (process.platform === 'win32')
    throw new UsageError('Expected a system with process groups, got Windows.')
  const plan = planOf(given)
  // Throws where there is no clock that both processes share: deadlines need one.
  monotonicMs()
  const signals = new Signals(leave)
  const guardian = new Guardian()
  try {
    // What is large is loaded while the guardian starts.
    const [place, { openLocks, take, whyBusy }] = await Promise.all([placeOf(given), import('./taking.ts')])
    await using locks = await openLocks(place.url, { label: plan.label })
    await guardian.ready()
    const waiting = new AbortController()
    signals.redirect((name) => interrupt(waiting, name))
    guardian.onGoneBefore(() => waiting.abort(new GuardianGone()))
    const lease = await take(locks, plan, waiting.signal)
    if (lease === null) {
      complain(await whyBusy(locks, { ...plan, place }))
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
    if (!(error instanceof GuardianGone)) throw error
    complain(NO_GUARDIAN)
    return EXIT.noProcess
  } finally {
    guardian.dismiss()
  }
}

/** The guardian was not started, or died while this process waited for the key. */
class GuardianGone extends Error {}

async function giveBack(lease: Lease, ending: Ending | undefined): Promise<void> {
  // Do not release a lost lease: the store that did not renew it will hardly answer now.
  if (lease.state === 'lost') return
  // The command may still run. Its key cannot be renewed, but stays taken until the ttl is over.
  if (ending?.tag === 'unknown' || ending?.tag === 'out-of-reach') lease.detach()
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
    HOLDFAST_HOLDS: holdsWith(lease),
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
      complain(NO_GUARDIAN)
      return EXIT.noProcess
    case 'unknown':
      complain(
        `the process that guards the command died while it started it: the command may still run.${stillTaken(plan, lease)}`,
      )
      return EXIT.lost
    case 'out-of-reach':
      complain(
        `the command was to end, and could not be killed, because it runs as another user: it may still run.${guardian.ending ? ` ${whyLost(lease)}` : ''}${stillTaken(plan, lease)}`,
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

/** The lease is detached if it is held. */
function stillTaken({ key }: RunPlan, { state, remainingMs }: Lease): string {
  return state === 'lost' ? '' : ` ${json(key)} stays taken for ${age(remainingMs)}.`
}

const NO_GUARDIAN = 'the process that guards the command could not be started, or has died'

function whyLost(lease: Lease): string {
  try {
    lease.assertHeld()
    return 'It was not renewed in time, or the process that guards the command died.'
  } catch (error) {
    return messageOf(error)
  }
}
