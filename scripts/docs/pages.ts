import { readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import {
  type Application,
  type CommentDisplayPart,
  Converter,
  DocumentReflection,
  MinimalSourceFile,
  normalizePath,
  type ProjectReflection,
} from 'typedoc'
import { withDiagrams } from './diagrams.ts'
import { keepCodeInHeadings, PageRouter } from './router.ts'
import { PAGE_BOOST } from './search.ts'
import { sourceLink } from './sources.ts'

export interface Pages {
  readonly root: string
  readonly groups: ReadonlyMap<string, readonly Entry[]>
}

/** A page in the sidebar. */
export interface Entry {
  readonly title: string
  readonly path: string
}

const LIST = 'Read on'
const TABLE = 'What it does'

/** The pages in the order, in the groups and under the titles of README: those of its list “Read on”, and of its table. */
export function pageGroups(root: string): Map<string, readonly Entry[]> {
  const readme = readFileSync(join(root, 'README.md'), 'utf8')
  const section = (title: string): string => readme.split(`\n## ${title}\n`)[1]?.split('\n## ')[0] ?? ''
  const listed = Array.from(section(LIST).matchAll(/^- \*\*(.+)\*\*:([\s\S]*?)(?=^- |^$)/gm))
  const groups = listed.map(([, title = '', links = '']): [string, Entry[]] => [title, entriesIn(links)])
  const inList = new Set(groups.flatMap(([, entries]) => entries.map(({ path }) => path)))
  const rest = entriesIn(section(TABLE)).filter(({ path }) => !inList.has(path))
  const at = groups.findIndex(([title]) => title === BEFORE)
  if (at < 0) throw new Error(`README has no pages about “${BEFORE}” below “${LIST}”.`)
  groups.splice(at, 0, [TABLE, rest])
  return withParts(root, groups)
}

const BEFORE = 'Stores'

/** Behind a page its parts, which README leaves to the page itself: `cookbook-web.md` is a part of `cookbook.md`. */
function withParts(
  root: string,
  groups: readonly [string, readonly Entry[]][],
): Map<string, readonly Entry[]> {
  const named = new Set(groups.flatMap(([, entries]) => entries.map(({ path }) => path)))
  const unnamed = pagesOf(root).filter((path) => !named.has(path))
  const partsOf = ({ path }: Entry): readonly Entry[] => {
    const parts = unnamed.filter((part) => part.startsWith(path.replace('.md', '-')))
    return parts.map((part) => ({ title: headingOf(root, part), path: part }))
  }
  const all = new Map(
    groups.map(([title, entries]) => [title, entries.flatMap((one) => [one, ...partsOf(one)])]),
  )
  const found = new Set([...all.values()].flat().map(({ path }) => path))
  const lost = unnamed.filter((path) => !found.has(path))
  if (lost.length > 0) {
    throw new Error(`README names these pages neither in “${LIST}” nor in “${TABLE}”: ${lost.join(', ')}.`)
  }
  return all
}

function pagesOf(root: string): string[] {
  const files = readdirSync(join(root, 'docs')).filter((file) => file.endsWith('.md'))
  return files.sort().map((file) => `docs/${file}`)
}

function headingOf(root: string, path: string): string {
  return /^# (.+)$/m.exec(readFileSync(join(root, path), 'utf8'))?.[1] ?? path
}

function entriesIn(markdown: string): Entry[] {
  const links = Array.from(markdown.matchAll(/\[([^\]]+)\]\(([\w/.-]+\.md)\)/g))
  const titles = new Map(links.map(([, title = '', path = '']) => [path, title.replaceAll('`', '')]))
  return Array.from(titles, ([path, title]) => ({ title, path }))
}

export function addPages(app: Application, { root, groups }: Pages): void {
  app.renderer.defineRouter('pages', PageRouter)
  app.options.setValue('router', 'pages')
  app.options.setValue('markdownItLoader', keepCodeInHeadings)
  app.converter.on(Converter.EVENT_BEGIN, ({ project }) => {
    const parse = (path: string): CommentDisplayPart[] => {
      const markdown = readFileSync(join(root, path), 'utf8')
      const text = withDiagrams(withFolders(withoutHidden(markdown), join(root, dirname(path)), root))
      const file = new MinimalSourceFile(text, normalizePath(join(root, path)))
      const { content } = app.converter.parseRawComment(file, project.files)
      return content.map((part) => toSources(part, { project, root }))
    }
    const readme = normalizePath(join(root, 'README.md'))
    project.readme = parse('README.md')
    project.files.registerReflectionPath(readme, project)
    for (const [group, entries] of groups) {
      for (const { title, path } of entries) {
        const page = new DocumentReflection(title, project, parse(path), { group, path })
        page.relevanceBoost = PAGE_BOOST
        project.addChild(page)
        project.registerReflection(page, undefined, normalizePath(join(root, path)))
      }
    }
  })
}

/** Without what a page declares for the type checker only. */
function withoutHidden(markdown: string): string {
  return markdown.replace(/^<!-- ts\n[\s\S]*?^-->\n/gm, '')
}

/** A link to a folder leads to a list of its files. TypeDoc takes it for a file. */
function withFolders(markdown: string, folder: string, root: string): string {
  return markdown.replace(/(?<=\]\()[\w./-]+(?=\))/g, (link) => {
    const target = join(folder, link)
    const isFolder = statSync(target, { throwIfNoEntry: false })?.isDirectory() === true
    return isFolder ? sourceLink(relative(root, target)) : link
  })
}

/** A link to a file of the repository leads to its page among the sources. TypeDoc would copy the file. */
function toSources(
  part: CommentDisplayPart,
  { project, root }: { project: ProjectReflection; root: string },
): CommentDisplayPart {
  if (part.kind !== 'relative-link' || part.target === undefined) return part
  const path = project.files.resolvePath(part.target)
  if (path === undefined || /\.(md|png|svg)$/.test(path)) return part
  return { kind: 'text', text: sourceLink(relative(root, path)) }
}
