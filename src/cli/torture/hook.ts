import { type ChildProcess, spawn } from 'node:child_process'
import { constants } from 'node:os'
import { messageOf } from '../../base/thrown.ts'

/** How a call of the program of `--on-fault` ended. */
export type HookResult = 'done' | { readonly failed: string }

/** Calls the program with `begin` or `end`. What it prints goes to standard error. */
export async function callHook(file: string, when: 'begin' | 'end', seconds = 60): Promise<HookResult> {
  try {
    const child = spawn(file, [when], {
      stdio: ['ignore', process.stderr, process.stderr],
      // Ctrl-C is for the run, which still has to call `end`.
      detached: true,
    })
    return await resultOf(child, seconds)
  } catch (error) {
    // Node.js throws some of the failures to start a program. The others are events.
    return { failed: messageOf(error) }
  }
}

function resultOf(child: ChildProcess, seconds: number): Promise<HookResult> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      settle({ failed: `did not end within ${seconds} s` })
      end()
    }, seconds * 1000)
    child.once('error', ({ message }) => settle({ failed: message }))
    child.once('exit', (code, signal) => {
      if (code === 0) settle('done')
      else settle({ failed: signal === null ? `exit code ${code}` : `signal ${constants.signals[signal]}` })
    })

    function settle(result: HookResult): void {
      clearTimeout(timer)
      resolve(result)
    }

    function end(): void {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
      } catch {
        // It has ended in the meantime.
      }
    }
  })
}
