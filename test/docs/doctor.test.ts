import { expect, test } from 'vitest'
import { projectFiles, readProjectFile } from '../tidy/project.ts'

const page = readProjectFile('docs/doctor.md')

test.each([
  { sections: ['Every store'], files: /^src\/diagnose\.ts$/ },
  { sections: ['SQLite'], files: /^src\/stores\/sqlite\/doctor\.ts$/ },
  {
    sections: ['Redis', 'Redis with Sentinels', 'Redis Cluster', 'redlock'],
    files: /^src\/(base\/diagnosis|stores\/(redis|redlock)\/.*doctor[\w-]*)\.ts$/,
  },
  { sections: ['PostgreSQL'], files: /^src\/(base\/diagnosis|stores\/postgres\/doctor)\.ts$/ },
  { sections: ['etcd'], files: /^src\/(base\/diagnosis|stores\/etcd\/doctor[\w-]*)\.ts$/ },
])('the page on the doctor has each check of $sections, and no other', ({ sections, files }) => {
  const made = projectFiles()
    .filter((path) => files.test(path))
    .flatMap(checksOf)
  expect(made).not.toEqual([])
  expect([...new Set(sections.flatMap(rowsOf))].sort()).toEqual([...new Set(made)].sort())
})

/** The names of the findings that a source file makes. */
function checksOf(path: string): string[] {
  const names = readProjectFile(path).matchAll(/\bcheck(?: =|:) '([\w -]+)'/g)
  return Array.from(names, ([, name = '']) => name)
}

/** The names in the first column of the tables below a heading. */
function rowsOf(section: string): string[] {
  const [, text = ''] = page.split(`\n## ${section}\n`)
  const rows = (text.split('\n## ')[0] ?? '').matchAll(/^\| `([\w -]+)` \|/gm)
  return Array.from(rows, ([, name = '']) => name)
}
