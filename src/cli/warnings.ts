import { complain } from './terminal.ts'

/** What the warnings of the library have told so far. */
const told: string[] = []

/** Prints the warnings of the library as this program prints all else. Those of others stay as Node.js prints them. */
export function tellWarnings(): void {
  const listeners = process.listeners('warning')
  process.removeAllListeners('warning')
  // None: the user has switched warnings off.
  if (listeners.length === 0) return
  process.on('warning', (warning) => {
    if (warning.name === 'HoldfastWarning') {
      told.push(warning.message)
      complain(warning.message)
    } else {
      for (const listener of listeners) listener(warning)
    }
  })
}

/** Whether a warning has just said the same, so that an error need not say it again. */
export function isTold(message: string): boolean {
  return told.includes(message)
}
