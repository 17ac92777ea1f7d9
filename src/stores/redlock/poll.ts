import type { Answer } from '../../contract/store.ts'
import type { RedlockNode } from './node.ts'

/** What the servers have said so far to one question, by their place in the list. */
export interface Tally<T> {
  readonly answers: readonly (T | undefined)[]
  /** How many may still answer. */
  readonly pending: number
  readonly errors: readonly unknown[]
}

export interface PollOptions<T, D> {
  /** Asked after every answer: a decision, or undefined to wait for more. Decides at the latest when nothing is pending. */
  readonly decide: (tally: Tally<T>) => D | undefined
  /** What a server says when it is decided already. */
  readonly late?: (node: RedlockNode, answer: T) => void
  /** A server that gave no answer, before or after it was decided. */
  readonly failed?: (node: RedlockNode) => void
}

/** Asks all servers at once, and resolves as soon as enough of them have answered. */
export function poll<T, D>(
  nodes: readonly RedlockNode[],
  request: (node: RedlockNode) => Answer<T>,
  { decide, late = ignore, failed = ignore }: PollOptions<T, D>,
): Promise<D> {
  return new Promise((resolve, reject) => {
    const answers: (T | undefined)[] = []
    const errors: unknown[] = []
    let pending = nodes.length
    let asking = true
    let decided = false
    const settle = (): void => {
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
    for (const node of nodes) {
      node.ask(() => request(node), {
        answered: (answer) => {
          if (decided) return late(node, answer)
          answers[node.index] = answer
          pending -= 1
          settle()
        },
        failed: (error) => {
          failed(node)
          errors.push(error)
          pending -= 1
          settle()
        },
        answeredLate: (answer) => late(node, answer),
      })
    }
    asking = false
    settle()
  })
}

function ignore(): void {}
