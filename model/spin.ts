import { execFile } from 'node:child_process'
import { copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { ensureBinary } from '../test/servers/install.ts'

/** One search of a model. */
export interface Search {
  readonly file: string
  /** As `-D` for the preprocessor of Spin. */
  readonly defines: readonly string[]
  readonly kind: 'always' | 'eventually'
  /** A short search is not worth an optimizing compiler. */
  readonly isShort: boolean
  /** The longest run that is followed. Memory for it is taken at the start. A search that comes to it is not complete. */
  readonly mostSteps: number
}

export interface Found {
  readonly states: number
  /** Whether every state that can be reached was looked at. */
  readonly isComplete: boolean
  /** What Spin says of the counter-example. `null`: there is none. */
  readonly violation: string | null
  /** How many steps the counter-example has, or the longest run. */
  readonly depth: number
  readonly seconds: number
}

/** Has Spin make the checker of a model, compiles it, and runs it to its end or to the first counter-example. */
export async function search({ file, defines, kind, isShort, mostSteps }: Search): Promise<Found> {
  const spin = ensureBinary('spin')
  // The package of the compiler alone would come without the header files.
  const gcc = ensureBinary('gcc', { packageName: 'build-essential' })
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-model-'))
  try {
    for (const name of readdirSync(HERE))
      if (name.endsWith('.pml')) copyFileSync(join(HERE, name), join(folder, name))
    const run = (binary: string, args: readonly string[]): Promise<string> => runIn(folder, binary, args)
    const startedAt = performance.now()
    await run(spin, ['-a', ...defines.map((one) => `-D${one}`), file])
    const claims = kind === 'always' ? ['-DSAFETY', '-DNOCLAIM'] : []
    await run(gcc, [isShort ? '-O0' : '-O2', '-w', '-DCOLLAPSE', ...claims, '-o', 'pan', 'pan.c'])
    const text = await run(join(folder, 'pan'), [...(kind === 'eventually' ? ['-a'] : []), `-m${mostSteps}`])
    const seconds = (performance.now() - startedAt) / 1000
    const violation = /^pan:\d+: (.*) \(at depth \d+\)$/m.exec(text)?.[1] ?? null
    const isComplete = violation === null && !/Search not completed|max search depth too small/.test(text)
    const depth = /\(at depth (\d+)\)/.exec(text) ?? /depth reached (\d+)/.exec(text)
    return {
      states: Number(number(text, /(\d+) states, stored/)),
      isComplete,
      violation,
      depth: Number(depth?.[1]),
      seconds,
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const HERE = fileURLToPath(new URL('.', import.meta.url))

function number(text: string, pattern: RegExp): number {
  const found = pattern.exec(text)?.[1]
  if (found === undefined) throw new Error(`Expected the checker to say ${pattern}, it said:\n${text}`)
  return Number(found)
}

async function runIn(cwd: string, binary: string, args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await promisify(execFile)(binary, [...args], { cwd, maxBuffer: 2 ** 26 })
  return stdout + stderr
}
