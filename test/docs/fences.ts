import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { type BindingPattern, type Directive, parseSync, type Statement } from 'oxc-parser'
import { root } from '../tidy/project.ts'

export interface Page {
  readonly path: string
  readonly text: string
}

/**
 * Type-checks every ```ts fence of the pages, and returns the errors as `page:line message`. A fence is compiled as its
 * reader sees it: it may use what an earlier fence of the page imports or declares.
 *
 * A function of the reader's own domain may be declared out of sight: `<!-- ts`, then lines such as
 * `declare function pay(order: unknown): Promise<void>`, then `-->`. Anything else there is an error, because the reader
 * would miss it: a client, a lock, an import.
 */
export function typeErrorsInFences(pages: readonly Page[]): string[] {
  // Inside the project, because that is where the snippets' packages are found.
  mkdirSync(join(root, '.docs'), { recursive: true })
  const folder = mkdtempSync(join(root, '.docs/fences-'))
  try {
    const hiding: string[] = []
    for (const { path, text } of pages) {
      const { fences, hidden } = readPage(path, text)
      hiding.push(...whatReadersWouldMiss(path, hidden))
      for (const { line, module } of modulesOf(fences, hidden)) {
        const file = join(folder, path, `${line}.ts`)
        mkdirSync(dirname(file), { recursive: true })
        writeFileSync(file, module)
      }
    }
    return [...hiding, ...typeErrors(folder)].sort()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function typeErrors(folder: string): string[] {
  writeFileSync(join(folder, 'own.d.ts'), OWN_FILES)
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
  return inPages
}

/**
 * The reader's own files, which are nowhere. `./12.ts` is not one of them: it is an earlier snippet of the page. The first
 * pattern that fits counts.
 */
const OWN_FILES = `
  declare module '*/prisma.js' {
    // With the types of the reader's schema.
    export const prisma: { $transaction<T>(work: (tx: any) => Promise<T>): Promise<T> }
  }
  declare module '*.js'
  declare module '*.ts'
`

/** Lines of a page by their index, so that the position of an error is that in the page. */
type Lines = Map<number, string>

interface Fence {
  readonly line: number
  readonly lines: Lines
}

function readPage(path: string, text: string): { fences: Fence[]; hidden: Lines } {
  const fences: Fence[] = []
  const hidden: Lines = new Map()
  let target: Lines | undefined
  for (const [index, original] of text.split('\n').entries()) {
    const line = path.endsWith('.ts') ? original.replace(/^\s*\* ?/, '') : original
    if (target !== undefined) {
      if (/^\s*(```|-->)/.test(line)) target = undefined
      else target.set(index, line)
    } else if (/^\s*```ts\b/.test(line)) {
      target = new Map()
      fences.push({ line: index + 1, lines: target })
    } else if (/^<!-- ts$/.test(line)) {
      target = hidden
    }
  }
  return { fences, hidden }
}

/** Everything that is hidden and no function, or names a type that its reader would have to import. */
function whatReadersWouldMiss(path: string, hidden: Lines): string[] {
  const source = padded(hidden)
  const parts = bodyOf(path, source).map(({ type, start, end }) => ({
    isFunction: type === 'TSDeclareFunction',
    line: source.slice(0, start).split('\n').length,
    text: source.slice(start, end),
  }))
  return parts
    .filter(({ isFunction, text }) => !isFunction || /\bimport\(/.test(text))
    .map(({ line, text }) => `${path}:${line} hides from its reader: ${text.split('\n')[0]}`)
}

/** Each fence as a module, with what earlier fences and the hidden lines declare. */
function modulesOf(fences: readonly Fence[], hidden: Lines): { line: number; module: string }[] {
  const known = new Map<string, { isType: boolean; line: number }>()
  return fences.map(({ line, lines }) => {
    const above = new Map([...hidden].filter(([index]) => index < line))
    const aside = declaredIn(bodyOf(`${line}.ts`, padded(above)))
    const own = declaredIn(bodyOf(`${line}.ts`, padded(lines)))
    const taken = [...known].filter(([name]) => !own.has(name) && !aside.has(name))
    // On the line of the opening ```, which is no code.
    const imports = taken.map(([name, { isType, line: from }]) => {
      return `import ${isType ? 'type ' : ''}{ ${name} } from './${from}.ts'`
    })
    const module = padded(new Map([...above, [line - 1, imports.join(';')], ...lines]))
    const exports = [...own]
      .filter(([, { isExported }]) => !isExported)
      .map(([name, { isType }]) => `export ${isType ? 'type ' : ''}{ ${name} }`)
    for (const [name, { isType }] of own) known.set(name, { isType, line })
    return { line, module: `${module}\nexport {}\n${exports.join('\n')}\n` }
  })
}

interface Declared {
  readonly isType: boolean
  readonly isExported: boolean
}

/** The names that the top level of a module declares or imports. */
function declaredIn(body: readonly (Statement | Directive)[]): Map<string, Declared> {
  const names = new Map<string, Declared>()
  for (const statement of body) {
    const isExported = statement.type === 'ExportNamedDeclaration'
    const declaration = isExported ? statement.declaration : statement
    switch (declaration?.type) {
      case 'ImportDeclaration':
        for (const specifier of declaration.specifiers) {
          const isType =
            declaration.importKind === 'type' ||
            (specifier.type === 'ImportSpecifier' && specifier.importKind === 'type')
          names.set(specifier.local.name, { isType, isExported })
        }
        break
      case 'VariableDeclaration':
        for (const { id } of declaration.declarations) {
          for (const name of namesIn(id)) names.set(name, { isType: false, isExported })
        }
        break
      case 'TSInterfaceDeclaration':
      case 'TSTypeAliasDeclaration':
        names.set(declaration.id.name, { isType: true, isExported })
        break
      case 'FunctionDeclaration':
      case 'TSDeclareFunction':
      case 'ClassDeclaration':
        if (declaration.id !== null) names.set(declaration.id.name, { isType: false, isExported })
        break
      default:
    }
  }
  return names
}

/** `x`, and what `{ x, y: z }` and `[x, z]` declare. */
function namesIn(pattern: BindingPattern): string[] {
  switch (pattern.type) {
    case 'Identifier':
      return [pattern.name]
    case 'ObjectPattern':
      return pattern.properties.flatMap((one) => namesIn(one.type === 'Property' ? one.value : one.argument))
    case 'ArrayPattern':
      return pattern.elements.flatMap((one) =>
        one === null ? [] : namesIn(one.type === 'RestElement' ? one.argument : one),
      )
    case 'AssignmentPattern':
      return namesIn(pattern.left)
    default:
      return pattern satisfies never
  }
}

function bodyOf(path: string, source: string): readonly (Statement | Directive)[] {
  return parseSync(`${path}.ts`, source).program.body
}

function padded(lines: Lines): string {
  const last = Math.max(...lines.keys(), 0)
  return Array.from({ length: last + 1 }, (_, at) => lines.get(at) ?? '').join('\n')
}
