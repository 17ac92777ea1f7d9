import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Application, type DocumentReflection, IndexEvent } from 'typedoc'

/**
 * Finds a page by the words of its headings, before the many members that are called by the same word. TypeDoc shows ten results,
 * names before text.
 */
export function findByHeadings(app: Application): void {
  app.renderer.on(IndexEvent.PREPARE_INDEX, (event) => {
    event.searchFieldWeights['headings'] = 20
    for (const [index, one] of event.searchResults.entries()) {
      event.searchFields[index] = one.isDocument() ? { headings: headingsOf(one) } : {}
    }
  })
}

/** How much more a page counts than a name. */
export const PAGE_BOOST = 40

function headingsOf({ content }: DocumentReflection): string {
  const markdown = content.map(({ text }) => text).join('')
  return Array.from(markdown.matchAll(/^#+ (.+)$/gm), ([, heading]) => heading).join('\n')
}

/**
 * Mends the search of the site. lunr 2.3.9 shares the nodes of its token set by a text of their edges, in which the number of one edge runs into
 * the letter of the next one. Where words have digits, two nodes may have the same text. Then the set has words that no page has, and a
 * search for one of them fails. With a comma behind each number the texts differ.
 */
export function mendSearch(site: string): void {
  const path = join(site, 'assets/main.js')
  const program = readFileSync(path, 'utf8')
  const parts = program.split(EDGE)
  if (parts.length !== 2)
    throw new Error(`Expected \`${EDGE}\` once in main.js of TypeDoc, got ${parts.length - 1}.`)
  writeFileSync(path, parts.join(`${EDGE}+","`))
}

const EDGE = 'e=e+s+o.id'
