// The types as tsc emits them, read from the `.d.ts` files: what a module exports, and what a name stands for.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Node, parseSync, visitorKeys } from 'oxc-parser'

/** What a name stands for: a declaration of ours, or a name of another package. */
export type Found =
  | { readonly tag: 'declared'; readonly declared: Declared }
  | { readonly tag: 'foreign'; readonly from: string; readonly name: string }

/** The emitted `.d.ts` files, each read once. */
export class Modules {
  readonly #modules = new Map<string, Module>()

  of(path: string): Module {
    let module = this.#modules.get(path)
    if (module === undefined) {
      module = new Module(path, this)
      this.#modules.set(path, module)
    }
    return module
  }

  exportsOf(path: string): Map<string, Found> {
    const module = this.of(path)
    return new Map([...module.exported.keys()].map((name) => [name, module.export(name)]))
  }
}

/** A name in another module. */
interface Link {
  readonly from: string
  readonly name: string
  /** `import type` or `export type`: a class that comes this way cannot be called. */
  readonly isType: boolean
}

export class Module {
  /** By the name outside: the name inside, or where it comes from. */
  readonly exported = new Map<string, string | Link>()
  readonly path: string
  readonly #modules: Modules
  readonly #imported = new Map<string, Link>()
  readonly #declared = new Map<string, Declared>()
  /** What it adds to another package, by `declare module`. */
  readonly additions: Declared[] = []

  constructor(path: string, modules: Modules) {
    this.path = path
    this.#modules = modules
    const source = readFileSync(path, 'utf8')
    const { program, comments, errors } = parseSync(path, source)
    if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]?.message}`)
    for (const node of program.body) this.#read(node, { source, comments })
  }

  /** Whether a name that it exports is one for types alone. */
  isType(name: string): boolean {
    const target = this.exported.get(name)
    return typeof target === 'object' ? this.#isTypeThere(target) : this.#isTypeHere(target ?? name)
  }

  #isTypeHere(name: string): boolean {
    const declared = this.#declared.get(name)
    if (declared !== undefined) return declared.isType
    const link = this.#imported.get(name)
    return link !== undefined && this.#isTypeThere(link)
  }

  #isTypeThere({ from, name, isType }: Link): boolean {
    return isType || (from.startsWith('.') && this.#modules.of(this.#pathOf(from)).isType(name))
  }

  export(name: string): Found {
    const target = this.exported.get(name)
    if (target === undefined) throw new Error(`${this.path} exports no ${name}`)
    const found = typeof target === 'string' ? this.find(target) : this.#follow(target)
    if (found === undefined) throw new Error(`${this.path} exports ${name}, which is nowhere`)
    return found
  }

  /** What a name inside of this module stands for; `undefined` for a global or a type parameter. */
  find(name: string): Found | undefined {
    const declared = this.#declared.get(name)
    if (declared !== undefined) return { tag: 'declared', declared }
    const link = this.#imported.get(name)
    return link && this.#follow(link)
  }

  #follow({ from, name }: Link): Found {
    if (!from.startsWith('.')) return { tag: 'foreign', from, name }
    return this.#modules.of(this.#pathOf(from)).export(name)
  }

  #pathOf(from: string): string {
    return join(dirname(this.path), from).replace(/\.(js|ts)$/, '.d.ts')
  }

  #read(node: Node, text: Text): void {
    switch (node.type) {
      case 'ImportDeclaration':
        for (const specifier of node.specifiers) {
          const name =
            specifier.type === 'ImportSpecifier' ? nameOf(specifier.imported) : specifier.local.name
          const isType =
            node.importKind === 'type' ||
            (specifier.type === 'ImportSpecifier' && specifier.importKind === 'type')
          this.#imported.set(specifier.local.name, { from: node.source.value, name, isType })
        }
        return
      case 'ExportNamedDeclaration':
        if (node.declaration !== null) {
          for (const name of this.#declare(node.declaration, node, text)) this.exported.set(name, name)
        }
        for (const { local, exported, exportKind } of node.specifiers) {
          const name = nameOf(local)
          const isType = node.exportKind === 'type' || exportKind === 'type'
          const link = node.source === null ? name : { from: node.source.value, name, isType }
          this.exported.set(nameOf(exported), link)
        }
        return
      case 'ExportAllDeclaration':
      case 'ExportDefaultDeclaration':
        throw new Error(`${this.path} exports without a name`)
      case 'TSModuleDeclaration': {
        const addition = new Declared('', this)
        addition.add({ node, statement: node, text })
        this.additions.push(addition)
        return
      }
      default:
        this.#declare(node, node, text)
    }
  }

  #declare(node: Node, statement: Span, text: Text): string[] {
    const names = declaredNames(node)
    for (const name of names) {
      // Overloads are several declarations of one name.
      const declared = this.#declared.get(name) ?? new Declared(name, this)
      declared.add({ node, statement, text })
      this.#declared.set(name, declared)
    }
    return names
  }
}

/** One statement of a declaration. */
export interface Part {
  readonly node: Node
  /** Where it stands, with `export` in front. */
  readonly statement: Span
  readonly text: Text
}

interface Text {
  readonly source: string
  readonly comments: readonly Span[]
}

export class Declared {
  readonly name: string
  readonly module: Module
  readonly parts: Part[] = []

  constructor(name: string, module: Module) {
    this.name = name
    this.module = module
  }

  add(part: Part): void {
    this.parts.push(part)
  }

  get isType(): boolean {
    return this.parts.every(
      ({ node: { type } }) => type === 'TSInterfaceDeclaration' || type === 'TSTypeAliasDeclaration',
    )
  }

  /** What its signatures refer to. */
  *references(isExported: boolean): Generator<Found, void, void> {
    for (const { found } of this.mentions(isExported)) yield found
  }

  /** What its signatures refer to, and where they do. */
  *mentions(isExported: boolean): Generator<{ readonly at: Named; readonly found: Found }, void, void> {
    for (const { node } of this.parts) {
      for (const at of typeNames(node, new Set(hidden(node, isExported)))) {
        const found = this.module.find(at.name)
        if (found !== undefined) yield { at, found }
      }
    }
  }

  text(isExported: boolean): string {
    return this.parts
      .map(({ node, text: { source, comments } }) => {
        const left = [...comments, ...hidden(node, isExported)].filter(
          ({ start, end }) => start >= node.start && end <= node.end,
        )
        return plain(without(source, node, left))
      })
      .join('\n')
  }
}

/** Members that nobody outside can use: what is private, and the constructor of a class that no entry exports. */
function hidden(node: Node, isExported: boolean): Node[] {
  if (node.type !== 'ClassDeclaration') return []
  return node.body.body.filter((member) => {
    if (!('key' in member)) return false
    if (member.key.type === 'PrivateIdentifier' || member.accessibility === 'private') return true
    return !isExported && 'kind' in member && member.kind === 'constructor'
  })
}

/** The types (and values, after `typeof`) that it refers to, without what stands in `except`. */
function* typeNames(node: Node, except: ReadonlySet<Node>): Generator<Named, void, void> {
  if (except.has(node)) return
  const named = reference(node)
  if (named !== undefined) yield firstName(named)
  for (const key of visitorKeys[node.type] ?? []) {
    const child = (node as unknown as Record<string, Node | readonly (Node | null)[] | null>)[key]
    for (const one of Array.isArray(child) ? child : [child]) if (one) yield* typeNames(one, except)
  }
}

function reference(node: Node): Node | undefined {
  switch (node.type) {
    case 'TSTypeReference':
      return node.typeName
    case 'TSTypeQuery':
      return node.exprName
    case 'TSClassImplements':
    case 'TSInterfaceHeritage':
      return node.expression
    case 'ClassDeclaration':
      return node.superClass ?? undefined
    case 'TSImportType':
      throw new Error(`Expected every type to be imported by its name, got import(…) at ${node.start}`)
    default:
      return undefined
  }
}

/** A name, and where it stands. */
export type Named = Extract<Node, { type: 'Identifier' }>

/** `a` of `a.b.c`. */
function firstName(node: Node): Named {
  if (node.type === 'TSQualifiedName') return firstName(node.left)
  if (node.type === 'Identifier') return node
  throw new Error(`Expected a name, got a ${node.type}`)
}

function declaredNames(node: Node): string[] {
  switch (node.type) {
    case 'TSInterfaceDeclaration':
    case 'TSTypeAliasDeclaration':
    case 'ClassDeclaration':
    case 'TSDeclareFunction':
      return node.id === null ? [] : [node.id.name]
    case 'VariableDeclaration':
      return node.declarations.map(({ id }) => nameOf(id))
    default:
      return []
  }
}

function nameOf(node: Node): string {
  if (node.type === 'Identifier') return node.name
  if (node.type === 'Literal') return String(node.value)
  throw new Error(`Expected a name, got a ${node.type}`)
}

function without(source: string, { start, end }: Span, left: readonly Span[]): string {
  let text = ''
  let at = start
  for (const part of left.toSorted((a, b) => a.start - b.start)) {
    text += source.slice(at, part.start)
    at = part.end
  }
  return text + source.slice(at, end)
}

export interface Span {
  readonly start: number
  readonly end: number
}

/** As the sources are written: no semicolons, two spaces. */
function plain(text: string): string {
  return text
    .replace(/^declare /, '')
    .split('\n')
    .filter((line) => !/^\s*;?\s*$/.test(line))
    .map((line) => line.replace(/^ +/, (indent) => ' '.repeat(indent.length / 2)).replace(/;?\s*$/, ''))
    .join('\n')
    .replace(/=\n(?=\S)/g, '= ')
    .replace(/\n\| /g, ' | ')
}
