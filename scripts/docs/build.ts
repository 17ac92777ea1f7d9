// Builds the documentation as a static site that also works from a folder, search included: the pages of the repository, and
// the reference of every public name. Fails on a link that leads nowhere and on a public name without a docstring.
//
//   npm run docs [-- <folder>]
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Application, type ProjectReflection } from 'typedoc'
import { documentOverloads, namePublicTypes, sortNames, undocumented } from './docstrings.ts'
import { resolveLinks } from './links.ts'
import { addPages, pageGroups } from './pages.ts'
import { findByHeadings, mendSearch } from './search.ts'
import { writeSources } from './sources.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const out = resolve(process.argv[2] ?? join(root, 'site'))
const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8')) as {
  compilerOptions: { paths: Record<string, readonly [string]> }
}
/** Source file and name of each entry of the package. */
const entries = Object.entries(compilerOptions.paths).map(([name, [source]]) => ({
  name,
  source: join(root, source),
}))
const groups = pageGroups(root)
const REFERENCE = 'Reference'

const app = await Application.bootstrap({
  name: 'holdfast',
  entryPoints: entries.map(({ source }) => source),
  tsconfig: join(root, 'tsconfig.build.json'),
  // The project's own compiler has checked the types; TypeDoc's is an older one.
  skipErrorChecking: true,
  readme: 'none',
  basePath: root,
  sort: ['kind', 'source-order'],
  sortEntryPoints: false,
  groupOrder: [...groups.keys(), REFERENCE, 'Functions', 'Classes', 'Interfaces', '*'],
  headings: { readme: false, document: false },
  locales: { en: { kind_plural_module: REFERENCE } },
  navigation: { includeGroups: true, includeCategories: false, includeFolders: false },
  includeHierarchySummary: false,
  visibilityFilters: {},
  searchInComments: true,
  searchInDocuments: true,
  highlightLanguages: ['typescript', 'javascript', 'json', 'yaml', 'bash', 'sql', 'lua', 'docker'],
  ignoredHighlightLanguages: ['acl'],
  lightHighlightTheme: 'github-light-high-contrast',
  darkHighlightTheme: 'github-dark-high-contrast',
  customCss: join(root, 'scripts/docs/site.css'),
  githubPages: false,
  hideGenerator: true,
  // Parts of a signature that nobody writes down.
  intentionallyNotExported: [
    'Columns',
    'CurrentTerm',
    'IsOptional',
    'LockAnswer',
    'NameOf',
    'Parameterized',
    'PgClient',
    'PgPool',
    'PostgresJs',
    'RequestSocket',
    'Routine',
    'SchedulePayload',
    'SqliteEngine',
  ],
})
addPages(app, { root, groups })
resolveLinks(app)
documentOverloads(app)
namePublicTypes(app)
findByHeadings(app)
writeSources(app, root)

const project = convert()
sortNames(project)
app.validate(project)
for (const name of undocumented(project)) app.logger.error(`${name} has no docstring.`)
await app.generateDocs(project, out)
mendSearch(out)
if (app.logger.hasErrors() || app.logger.hasWarnings()) process.exitCode = 1

/** The entries under the names by which they are imported. */
function convert(): ProjectReflection {
  const found = app.getEntryPoints() ?? []
  if (found.length !== entries.length) throw new Error('TypeDoc does not find every entry of the package.')
  return app.converter.convert(
    found.map((entry, index) => ({ ...entry, displayName: entries[index]?.name ?? '' })),
  )
}
