import { type Abortable, SignalWatch } from './signal-watch.ts'

/** The result of the work. Rejects with the reason of a signal as soon as one aborts; the work goes on. Leaves no listener behind. */
export async function unlessAborted<T>(
  work: Promise<T>,
  ...signals: readonly (AbortSignal | undefined)[]
): Promise<T> {
  const given = signals.filter((signal) => signal !== undefined)
  if (given.length === 0) return work
  let abort: Abortable['abort'] = () => {}
  const ended = new Promise<never>((_, reject) => {
    abort = reject
  })
  const waiting = { abort }
  for (const signal of given) {
    if (signal.aborted) abort(signal.reason)
    watch.add(signal, waiting)
  }
  try {
    return await Promise.race([ended, work])
  } finally {
    for (const signal of given) watch.remove(signal, waiting)
  }
}

const watch = new SignalWatch()
