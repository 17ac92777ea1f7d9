/**
 * Waits for all, but for a moment only once one is done.
 *
 * @throws the first error, if none was done.
 */
export async function settleMost(promises: readonly Promise<void>[]): Promise<void> {
  let limit: NodeJS.Timeout | undefined
  const all = Promise.allSettled(promises)
  const late = Promise.any(promises).then(
    () =>
      new Promise<undefined>((resolve) => {
        limit = setTimeout(resolve, STRAGGLERS_MS, undefined).unref()
      }),
  )
  // If there is none, the others tell why.
  const outcomes = await Promise.race([all, late.catch(() => all)])
  clearTimeout(limit)
  const failed = outcomes?.every(({ status }) => status === 'rejected') && outcomes[0]
  if (failed && failed.status === 'rejected') throw failed.reason
}

/** Far less than a renewal may take. */
const STRAGGLERS_MS = 500
