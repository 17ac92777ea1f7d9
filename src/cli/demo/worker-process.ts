/**
 * One worker of the demo: takes the key, works for a while, gives it back, and tries again, until it gets SIGTERM. Every
 * write goes to the register with the fence of the lease.
 */
import { messageOf } from '../../base/thrown.ts'
import { connect, isHoldfastError, type Locks } from '../../index.ts'
import { monotonicMs } from '../machine-time.ts'
import { whenParentEnds } from '../parent-process.ts'
import { FencedRegister } from './register.ts'
import { Shift } from './shift.ts'
import { ASSIGNMENT, type Assignment, FREEZE, type Tell } from './worker-messages.ts'

const assignment = JSON.parse(process.env[ASSIGNMENT] ?? '') as Assignment
const { worker, storeUrl, registerPath, key, ttlMs, shortestShiftMs } = assignment
const tell: Tell = (event, atMs = monotonicMs()) => {
  if (process.connected) process.send?.({ atMs, ...event }, () => {})
}
const register = new FencedRegister(registerPath)
const stop = new AbortController()

process.on('SIGTERM', () => stop.abort())
// The worker stops itself: stopped from outside, it could be inside an SQLite transaction and block the file for all.
process.on('message', (order) => {
  if (order === FREEZE) process.kill(process.pid, 'SIGSTOP')
})
whenParentEnds(() => stop.abort())
// Ctrl-C reaches every process of the terminal. The demo decides when its workers end.
process.on('SIGINT', () => {})

void main()

async function main(): Promise<void> {
  try {
    await using locks = await connect(storeUrl, { ttl: ttlMs, label: `demo worker ${worker}` })
    await work(locks)
  } catch (error) {
    if (!stop.signal.aborted) tell({ tag: 'failed', message: messageOf(error) })
  } finally {
    register.close()
    if (process.connected) process.disconnect()
  }
}

async function work(locks: Locks): Promise<void> {
  while (!stop.signal.aborted) {
    tell({ tag: 'trying' })
    const lease = await locks.acquire(key, { wait: Number.POSITIVE_INFINITY, signal: stop.signal })
    await serve(
      new Shift(lease, { worker, register, tell, shortestMs: shortestShiftMs, signal: stop.signal }),
    )
  }
}

async function serve(shift: Shift): Promise<void> {
  try {
    await shift.serve()
  } catch (error) {
    if (!isHoldfastError(error, 'lease-lost')) throw error
    tell({ tag: 'lost', reason: error.reason })
    shift.writeLate()
  } finally {
    await shift.end()
  }
}
