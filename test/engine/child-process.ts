import { spawn } from 'node:child_process'
import { root } from '../tidy/project.ts'

export interface Ended {
  /** The exit code. `null` if the process had to be killed, because it did not end by itself. */
  readonly code: number | null
  readonly printed: string
  readonly complaints: string
}

/**
 * Runs a module in a Node.js process of its own, with the sources as `holdfast` and `memory`. Waits until the process
 * has ended by itself, and kills it after `withinMs`.
 */
export function runModule(body: string, { withinMs = 60_000 } = {}): Promise<Ended> {
  const source = [
    `import * as holdfast from '${new URL('src/index.ts', `file://${root}`)}'`,
    `import { memoryStore } from '${new URL('src/stores/memory/index.ts', `file://${root}`)}'`,
    'const { createLocks } = holdfast',
    body,
  ].join('\n')
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', source], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let printed = ''
  let complaints = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaints += text
  })
  const timeout = setTimeout(() => child.kill('SIGKILL'), withinMs)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => {
      clearTimeout(timeout)
      resolve({ code, printed: printed.trim(), complaints: complaints.trim() })
    })
  })
}
