import { EXIT } from './exit-codes.ts'
import { complain } from './terminal.ts'

let whenOutputFails: (() => void) | undefined
let hasFailed = false

/**
 * A command whose output cannot be written ends, unless it has something to undo first. `holdfast ls | head` closes the pipe
 * when it has seen enough. A command that is about to end then has a code of its own: `holdfast evict KEY … | true`.
 */
export function endWhenOutputFails(): void {
  process.stdout.on('error', ({ code, message }: NodeJS.ErrnoException) => {
    // Each further write fails again.
    if (hasFailed) return
    hasFailed = true
    const isClosed = code === 'EPIPE'
    // A full disk, or a terminal that is gone.
    if (!isClosed) complain(`the output cannot be written (${code ?? message})`)
    if (whenOutputFails !== undefined) whenOutputFails()
    else if (isClosed) setTimeout(() => process.exit(), ENDING_MS).unref()
    else process.exit(EXIT.noOutput)
  })
}

/** The command ends by itself when its output cannot be written. */
export function onOutputFailure(end: () => void): void {
  whenOutputFails = end
}

/** Longer than it takes to close a store. A command that goes on, such as `top`, ends then with 0. */
const ENDING_MS = 500
