/**
 * Calls the listener with each signal that a person or a service manager sends.
 *
 * The terminal sends Ctrl-C to all processes in the foreground, and npm and npx pass it on to their child. So a second SIGINT within
 * 100 ms is the same one.
 */
export function onSignal<Name extends NodeJS.Signals>(
  names: Iterable<Name>,
  listener: (name: Name) => void,
): void {
  let interruptedAt = Number.NEGATIVE_INFINITY
  for (const name of names) {
    process.on(name, () => {
      if (name === 'SIGINT') {
        const at = performance.now()
        if (at - interruptedAt < ECHO_MS) return
        interruptedAt = at
      }
      listener(name)
    })
  }
}

const ECHO_MS = 100
