import type { RoomNames } from './room-names.ts'

const warned = new Set<string>()

/** Locks work without messages, and who waits for one waits longer: somebody should know, once. */
export function warnOfMissingMessages(names: RoomNames): void {
  const warning = `The Redis user may not send or receive messages, so waiters ask for their turn every two seconds instead of being told. Grant it +publish, +subscribe and the channels &${names.everything}; see docs/redis.md.`
  if (warned.has(warning)) return
  warned.add(warning)
  process.emitWarning(warning, 'HoldfastWarning')
}
