import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { root } from '../tidy/project.ts'

export interface Page {
  readonly path: string
  readonly text: string
}

/**
 * Type-checks every ```ts fence of the pages as a module of its own, and returns the errors as `page:line message`.
 *
 * What snippets use but should not show is declared above them, in a comment that no reader sees, for the rest of the page:
 * `<!-- ts`, then lines such as `declare function pay(order: unknown): Promise<void>`, then `-->`.
 */
export function typeErrorsInFences(pages: readonly Page[]): string[] {
  // Inside the project, because that is where the snippets' packages are found.
  mkdirSync(join(root, '.docs'), { recursive: true })
  const folder = mkdtempSync(join(root, '.docs/fences-'))
  try {
    for (const { path, text } of pages) {
      for (const snippet of snippetsOf(path, text)) {
        const file = join(folder, path, `${snippet.line}.ts`)
        mkdirSync(dirname(file), { recursive: true })
        writeFileSync(file, snippet.module)
      }
    }
    // A snippet may import the reader's own file, which is nowhere.
    writeFileSync(join(folder, 'own.d.ts'), "declare module '*.js'\ndeclare module '*.ts'\n")
    const tsconfig = { extends: '../../tsconfig.json', include: ['.'] }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(tsconfig))
    const tsc = join(root, 'node_modules/.bin/tsc')
    const { stdout } = spawnSync(tsc, ['--pretty', 'false', '-p', folder], { cwd: root, encoding: 'utf8' })
    const errors = stdout.matchAll(/^(.+)\/\d+\.ts\((\d+),\d+\): error (.*)$/gm)
    const inPages = Array.from(errors, ([, path, line, message]) => {
      return `${relative(relative(root, folder), path ?? '')}:${line} ${message}`
    })
    // What is wrong with the sources is another test's; but a run that could not check at all must not look clean.
    if (/^error /m.test(stdout)) inPages.push(stdout)
    return inPages.sort()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Each fence with what was declared above it, every line where the page has it, so that error positions fit. */
function snippetsOf(path: string, text: string): { line: number; module: string }[] {
  const fences: { line: number; lines: Map<number, string> }[] = []
  const hidden = new Map<number, string>()
  let target: Map<number, string> | undefined
  for (const [index, original] of text.split('\n').entries()) {
    const line = path.endsWith('.ts') ? original.replace(/^\s*\* ?/, '') : original
    if (target !== undefined) {
      if (/^\s*(```|-->)/.test(line)) target = undefined
      else target.set(index, line)
    } else if (/^\s*```ts\b/.test(line)) {
      target = new Map(hidden)
      fences.push({ line: index + 1, lines: target })
    } else if (/^<!-- ts$/.test(line)) {
      target = hidden
    }
  }
  return fences.map(({ line, lines }) => {
    const last = Math.max(...lines.keys(), 0)
    const module = Array.from({ length: last + 1 }, (_, at) => lines.get(at) ?? '')
    return { line, module: `${module.join('\n')}\nexport {}\n` }
  })
}
