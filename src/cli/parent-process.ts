/**
 * Calls `ended` when the process that started this one with a channel has ended, whatever killed it. The parent gives its own
 * pid as the first argument. `ended` may be called more than once.
 */
export function whenParentEnds(ended: () => void): void {
  // The kernel closes the channel when the parent ends.
  process.on('disconnect', ended)
  // On Deno 2.9 `disconnect` does not come if the parent has left a message of this process unread. An orphan gets another
  // parent on every system.
  const parentPid = Number(process.argv[2])
  setInterval(() => {
    if (process.ppid !== parentPid) ended()
  }, LOOK_MS).unref()
  // The parent may have ended before the listener above was added.
  if (!process.connected) ended()
}

const LOOK_MS = 1000
