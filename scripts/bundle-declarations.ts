// Puts the declarations that tsc emits into few files. An entry only names what it exports. Declarations that need the same
// other packages are together in one file, so that no entry needs a package that its user does not have. The maps of these
// files lead to the sources.
import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import remapping, { type SourceMapInput } from '@jridgewell/remapping'
import MagicString, { Bundle } from 'magic-string'
import { type Declared, type Found, type Module, Modules, type Part } from './declarations.ts'

/** A file below `dist`, and the same below `dist/cjs`. One map serves both, because their texts are the same. */
export interface DeclarationFile {
  readonly path: string
  readonly text: string
  readonly map: string | undefined
}

/** What a project has that names neither a library of the language nor types, as by the defaults of TypeScript 7. */
const NEEDED = [
  {
    by: /\bAsyncDisposable\b|\bSymbol\.asyncDispose\b/,
    reference: '/// <reference lib="esnext.disposable" />',
  },
  { by: /\bBuffer\b|\bNodeJS\.|from 'node:/, reference: '/// <reference types="node" />' },
]

/**
 * @param emitted The folder that tsc wrote to.
 * @param entries The modules that the package exports, without their extension.
 */
export function bundleDeclarations(emitted: string, entries: readonly string[]): DeclarationFile[] {
  const modules = new Modules()
  const exported = new Map(
    entries.map((entry) => [entry, modules.exportsOf(join(emitted, `${entry}.d.ts`))] as const),
  )
  const roots = [...exported.values()].flatMap((found) => [...found.values()].flatMap(declaredOf))
  const places = placesOf(reachable(roots))
  const files = new Map<string, Place[]>()
  for (const place of places.values()) files.set(place.file, [...(files.get(place.file) ?? []), place])
  return [
    ...[...exported].map(([entry, found]) =>
      entryFile(entry, found, modules.of(join(emitted, `${entry}.d.ts`)), places),
    ),
    ...[...files].map(([file, inside]) => sharedFile(file, inside, places, emitted)),
  ]
}

/** Where a declaration is put, and what it is called there. */
interface Place {
  readonly declared: Declared
  readonly file: string
  readonly name: string
}

type Places = ReadonlyMap<Declared, Place>

function declaredOf(found: Found): Declared[] {
  return found.tag === 'declared' ? [found.declared] : []
}

/** With what their modules add to other packages. */
function reachable(roots: readonly Declared[]): Set<Declared> {
  const reached = new Set(roots)
  for (const declared of reached) {
    for (const found of [...declared.references(true)].flatMap(declaredOf)) reached.add(found)
    for (const addition of declared.module.additions) reached.add(addition)
  }
  return reached
}

function placesOf(all: ReadonlySet<Declared>): Places {
  const places = new Map<Declared, Place>()
  const taken = new Set<string>()
  const aliases = aliasesOf(all)
  for (const declared of all) {
    const packages = new Set([...reachable([declared])].flatMap(packagesOf))
    const file = packages.size === 0 ? 'core' : [...packages].sort().join('-')
    const name = [declared.name, ...(aliases.get(declared) ?? [])].find((one) => !taken.has(one))
    if (name === undefined) throw new Error(`Expected one declaration of ${declared.name}, got several`)
    if (name !== '') taken.add(name)
    places.set(declared, { declared, file, name })
  }
  return places
}

/** The names under which other modules import a declaration. */
function aliasesOf(all: ReadonlySet<Declared>): ReadonlyMap<Declared, ReadonlySet<string>> {
  const aliases = new Map<Declared, Set<string>>()
  for (const { at, found } of [...all].flatMap((declared) => [...declared.mentions(true)])) {
    for (const declared of declaredOf(found)) {
      aliases.set(declared, (aliases.get(declared) ?? new Set()).add(at.name))
    }
  }
  return aliases
}

/** The packages that a declaration names itself or adds to, as words of a file's name. */
function packagesOf(declared: Declared): string[] {
  const named = [...declared.references(true)].flatMap((found) =>
    found.tag === 'foreign' ? [found.from] : [],
  )
  const text = declared.text(true)
  const added = /^module ["']([^"']+)/m.exec(text)?.slice(1) ?? []
  const isOfNode = /\bBuffer\b|\bNodeJS\./.test(text)
  return [...named, ...added, ...(isOfNode ? ['node:'] : [])].map((from) =>
    from
      .replace(/^(node):.*/, '$1')
      .replace(/^@/, '')
      .replaceAll('/', '-'),
  )
}

function entryFile(
  entry: string,
  exported: ReadonlyMap<string, Found>,
  module: Module,
  places: Places,
): DeclarationFile {
  const lines = new Map<string, string[]>()
  for (const [name, found] of exported) {
    const place = found.tag === 'declared' ? (places.get(found.declared) as Place) : undefined
    const from = place === undefined ? (found as { from: string }).from : pathTo(entry, place.file)
    const original = place?.name ?? (found as { name: string }).name
    const type = module.isType(name) ? 'type ' : ''
    const line = `${type}${original === name ? name : `${original} as ${name}`}`
    lines.set(from, [...(lines.get(from) ?? []), line])
  }
  const text = [...lines].map(([from, names]) => `export { ${names.join(', ')} } from '${from}';\n`)
  return { path: `${entry}.d.ts`, text: text.join(''), map: undefined }
}

function pathTo(entry: string, file: string): string {
  return `./${relative(join('/', entry, '..'), `/types/${file}.js`)}`.replace('./../', '../')
}

function sharedFile(
  file: string,
  inside: readonly Place[],
  places: Places,
  emitted: string,
): DeclarationFile {
  const bundle = new Bundle({ separator: '' })
  const modules = new Map<Module, Place[]>()
  for (const place of inside) {
    const { module } = place.declared
    modules.set(module, [...(modules.get(module) ?? []), place])
  }
  const inOrder = [...modules].sort(([a], [b]) => (a.path < b.path ? -1 : 1))
  for (const [module, own] of inOrder) {
    bundle.addSource({ filename: module.path, content: cut(own, places) })
  }
  const header = imports(file, inside, places)
  const text = bundle.toString()
  const code = header + text.replace(/\/\*.*?\*\//gs, '')
  const references = NEEDED.filter(({ by }) => by.test(code)).map(({ reference }) => `${reference}\n`)
  bundle.prepend(references.join('') + header)
  return {
    path: `types/${file}.d.ts`,
    text: bundle.toString(),
    map: mapToSources(bundle, `${file}.d.ts`, emitted),
  }
}

/** A module, with nothing left in it but these declarations. */
function cut(own: readonly Place[], places: Places): MagicString {
  const parts = own.flatMap(({ declared }) => declared.parts)
  const { source } = (parts[0] as Part).text
  const text = new MagicString(source)
  let end = 0
  for (const part of parts.sort((a, b) => a.statement.start - b.statement.start)) {
    const { start } = withComment(part)
    if (start > end) text.remove(end, start)
    const { statement } = part
    if (part.node === statement && part.node.type !== 'TSModuleDeclaration') {
      text.prependRight(statement.start, 'export ')
    }
    text.appendLeft(statement.end, '\n')
    end = Math.max(end, statement.end)
  }
  text.remove(end, source.length)
  rename(text, own, places)
  return text
}

/** From its docstring on. */
function withComment({ statement, text: { source, comments } }: Part): { readonly start: number } {
  const before = comments.findLast(({ end }) => end <= statement.start)
  const isOwn = before !== undefined && source.slice(before.end, statement.start).trim() === ''
  return isOwn ? before : statement
}

function rename(text: MagicString, own: readonly Place[], places: Places): void {
  for (const { declared, name } of own) {
    for (const { node } of declared.parts) {
      if ('id' in node && node.id !== null && node.id.type === 'Identifier' && node.id.name !== name) {
        text.overwrite(node.id.start, node.id.end, name)
      }
    }
    for (const { at, found } of declared.mentions(true)) {
      const to = found.tag === 'declared' ? places.get(found.declared)?.name : at.name
      if (to !== undefined && to !== at.name) text.overwrite(at.start, at.end, to)
    }
  }
}

/** What the declarations of a file need of other files and packages. */
function imports(file: string, inside: readonly Place[], places: Places): string {
  const needed = new Map<string, Set<string>>()
  const need = (from: string, name: string) => needed.set(from, (needed.get(from) ?? new Set()).add(name))
  for (const { at, found } of inside.flatMap(({ declared }) => [...declared.mentions(true)])) {
    if (found.tag === 'foreign') {
      need(found.from, at.name === found.name ? at.name : `${found.name} as ${at.name}`)
    } else {
      const place = places.get(found.declared) as Place
      if (place.file !== file) need(`./${place.file}.js`, place.name)
    }
  }
  return [...needed].map(([from, names]) => `import { ${[...names].join(', ')} } from '${from}';\n`).join('')
}

function mapToSources(bundle: Bundle, file: string, emitted: string): string {
  const { mappings, sources, names } = bundle.generateMap({ hires: 'boundary' })
  const bundled: SourceMapInput = { version: 3, file, mappings, sources, names, sourcesContent: [] }
  const whole = remapping(bundled, (source) => {
    if (!source.endsWith('.d.ts')) return null
    const map = JSON.parse(readFileSync(`${source}.map`, 'utf8')) as { sources: string[] }
    const own = relative(emitted, source).replace(/\.d\.ts$/, '.ts')
    return { ...map, sources: [`/src/${own}`], sourceRoot: '' } as SourceMapInput
  })
  const fromTypes = whole.sources.map((source) => relative('/dist/types', source ?? ''))
  return JSON.stringify({ ...whole, sources: fromTypes, sourcesContent: undefined })
}
