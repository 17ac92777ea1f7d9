import { paused } from '../base/clock.ts'
import { type LocksContext, tryHold } from './hold.ts'
import { type HoldSettings, parseSettings, SHARED, TAKES } from './options.ts'

/**
 * Takes a lock and releases it. As readers, because the checks of other processes must not exclude this one. If the key is
 * taken all the same, the store has answered, and that is enough.
 */
export async function checkStore(
  context: LocksContext,
  { storeTimeoutMs = CHECK_MS }: HoldSettings,
): Promise<void> {
  const { clock } = context.engine
  const until = clock.monotonicMs() + storeTimeoutMs
  const lease = await tryHold(context, {
    key: 'holdfast#check',
    shape: SHARED,
    settings: { ...CHECKING, storeTimeoutMs },
  })
  if (lease === null) return
  const released = new AbortController()
  const done = lease.release().then(() => released.abort())
  await Promise.race([done, paused(clock, Math.max(0, until - clock.monotonicMs()), released.signal)])
}

/** If the process dies during its check, the store keeps the ticket for this long. It excludes nobody. */
const CHECKING: HoldSettings = { ...parseSettings({ ttl: 5000, renew: false }, TAKES.try), quiet: true }
const CHECK_MS = 5000
