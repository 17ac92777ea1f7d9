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
