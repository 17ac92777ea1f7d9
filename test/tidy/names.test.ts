import { expect, test } from 'vitest'
import { projectFiles, readProjectFile } from './project.ts'

/** Names that are declared in several files and mean the same in each, with the reason for the second declaration. */
const SAME_MEANING: Readonly<Record<string, string>> = {
  Election: 'index.ts exports the public members of the class.',
  Locks: 'index.ts exports the public members of the class.',
  MemberGroup: 'index.ts exports the public members of the class.',
  ReadWriteLock: 'index.ts exports the public members of the class.',
  Semaphore: 'index.ts exports the public members of the class.',
}

// A reader who has learned a name in one folder should not meet another thing of that name in the next one.
test('a type, class or interface of the sources is declared in one file', () => {
  const repeated = [...filesByName()].filter(([, files]) => files.length > 1)
  const excused = new Set(Object.keys(SAME_MEANING))
  expect(Object.fromEntries(repeated.filter(([name]) => !excused.has(name)))).toEqual({})
})

test('a name that is excused is still declared in several files', () => {
  const files = filesByName()
  const excused = Object.keys(SAME_MEANING)
  expect(excused.filter((name) => (files.get(name)?.length ?? 0) < 2)).toEqual([])
})

/** The top-level types, classes and interfaces of the sources, and the files that declare each of them. */
function filesByName(): ReadonlyMap<string, readonly string[]> {
  const declaration = /^(?:export )?(?:declare )?(?:abstract )?(?:type|class|interface) (\w+)/gm
  const sources = projectFiles().filter(
    (path) => /^src\/.*\.ts$/.test(path) && !path.endsWith('.generated.ts'),
  )
  const found = new Map<string, string[]>()
  for (const path of sources) {
    const names = new Set(Array.from(readProjectFile(path).matchAll(declaration), ([, name = '']) => name))
    for (const name of names) found.set(name, [...(found.get(name) ?? []), path])
  }
  return found
}
