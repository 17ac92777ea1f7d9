import {
  type PageDefinition,
  type ProjectReflection,
  type Reflection,
  Slugger,
  StructureRouter,
} from 'typedoc'

/** A page has the path of its file, and a public name the path by which it is imported: `holdfast/redis/redisStore.html`. */
export class PageRouter extends StructureRouter {
  override buildPages(project: ProjectReflection): PageDefinition[] {
    const pages = super.buildPages(project)
    for (const page of [project, ...(project.documents ?? [])]) {
      this.sluggers.set(page, new HeadingSlugger(this.sluggerConfiguration))
    }
    return pages
  }

  protected override getIdealBaseName(reflection: Reflection): string {
    if (!reflection.isDocument()) return super.getIdealBaseName(reflection)
    return String(reflection.frontmatter['path']).replace(/\.md$/, '')
  }
}

/** Names the headings of a page as GitHub does, so that a link to one leads to the same place here and there. */
class HeadingSlugger extends Slugger {
  readonly #anchors = new Set<string>()

  override slug(title: string): string {
    const words = title.toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '')
    const slug = words.trim().replace(/\s/g, '-')
    let anchor = slug
    for (let count = 1; this.#anchors.has(anchor); count += 1) anchor = `${slug}-${count}`
    this.#anchors.add(anchor)
    return anchor
  }

  override hasAnchor(anchor: string): boolean {
    return this.#anchors.has(anchor)
  }

  override getSimilarAnchors(): string[] {
    return [...this.#anchors]
  }
}

interface Token {
  type: string
  content: string
  children: Token[] | null
}

interface Parser {
  core: {
    ruler: {
      push(
        name: string,
        rule: (state: { tokens: Token[]; Token: new (...args: [string, string, number]) => Token }) => void,
      ): void
    }
  }
}

/** TypeDoc names a heading by its text alone, and takes no code for text. */
export function keepCodeInHeadings(parser: Parser): void {
  parser.core.ruler.push('code_in_headings', ({ tokens, Token }) => {
    const html = (content: string): Token => Object.assign(new Token('html_inline', '', 0), { content })
    const text = (content: string): Token => Object.assign(new Token('text', '', 0), { content })
    for (const [index, token] of tokens.entries()) {
      if (tokens[index - 1]?.type !== 'heading_open' || token.children === null) continue
      token.children = token.children.flatMap((child) =>
        child.type === 'code_inline' ? [html('<code>'), text(child.content), html('</code>')] : [child],
      )
    }
  })
}
