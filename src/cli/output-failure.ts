import { EXIT } from './exit-codes.ts'
import { complain } from './terminal.ts'

let whenOutputFails: (() => void) | undefined
let hasFailed = false

/**
 * A command whose output cannot be written ends at once, unless it has something to undo first. `holdfast ls | head` closes
 * the pipe when it has seen enough.
 */
export function endWhenOutputFails(): void {
  process.stdout.on('error', ({ code, message }: NodeJS.ErrnoException) => {
    // Each further write fails again.
    if (hasFailed) return
    hasFailed = true
    const isClosed = code === 'EPIPE'
    // A full disk, or a terminal that is gone.
    if (!isClosed) complain(`the output cannot be written (${code ?? message})`)
    if (whenOutputFails === undefined) process.exit(isClosed ? EXIT.ok : EXIT.noOutput)
    whenOutputFails()
  })
}

/** The command ends by itself when its output cannot be written. */
export function onOutputFailure(end: () => void): void {
  whenOutputFails = end
}
