import type { Answer } from '../../contract/store.ts'
import type { RedlockServer } from './redlock-server.ts'

/** The answers of the servers to one request so far, by their place in the list. */
export interface Tally<T> {
  readonly answers: readonly (T | undefined)[]
  /** How many servers may still answer. */
  readonly pending: number
  readonly errors: readonly unknown[]
}

export interface PollOptions<T, D> {
  /** Called after every answer. Returns the decision, or undefined to wait for more answers. Decides when nothing is pending. */
  readonly decide: (tally: Tally<T>) => D | undefined
  /** Called with an answer that comes after the decision. */
  readonly late?: (server: RedlockServer, answer: T) => void
  /** Called for a server that gave no answer, before or after the decision. */
  readonly failed?: (server: RedlockServer) => void
}

/** Asks all servers at once, and resolves as soon as `decide` has enough answers. */
export function poll<T, D>(
  servers: readonly RedlockServer[],
  request: (server: RedlockServer) => Answer<T>,
  { decide, late = ignore, failed = ignore }: PollOptions<T, D>,
): Promise<D> {
  return new Promise((resolve, reject) => {
    const answers: (T | undefined)[] = []
    const errors: unknown[] = []
    let pending = servers.length
    let asking = true
    let decided = false
    const tryToDecide = (): void => {
      if (asking || decided) return
      try {
        const decision = decide({ answers, pending, errors })
        if (decision === undefined) return
        decided = true
        resolve(decision)
      } catch (error) {
        decided = true
        reject(error)
      }
    }
    for (const server of servers) {
      server.ask(() => request(server), {
        answered: (answer) => {
          if (decided) return late(server, answer)
          answers[server.index] = answer
          pending -= 1
          tryToDecide()
        },
        failed: (error) => {
          failed(server)
          errors.push(error)
          pending -= 1
          tryToDecide()
        },
        answeredLate: (answer) => late(server, answer),
      })
    }
    asking = false
    tryToDecide()
  })
}

function ignore(): void {}
