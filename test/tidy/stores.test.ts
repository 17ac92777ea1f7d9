import { expect, test } from 'vitest'
import { projectFiles, readProjectFile } from './project.ts'

const sources = projectFiles().filter((path) => path.startsWith('src/'))
const stores = [...new Set(sources.flatMap((path) => /^src\/stores\/([\w-]+)\//.exec(path)?.[1] ?? []))].map(
  (name) => ({ name }),
)

/** The files of a store that are elsewhere, or not needed: the file, or the reason. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  'memory/options': 'src/stores/memory/memory-store.ts',
  'memory/open': 'src/stores/memory/memory-store.ts',
  'memory/failures': 'It lives in the process, and cannot fail.',
  'memory/doctor': 'There is no server to look at.',
  'redis/failures': 'src/stores/redis/server/failures.ts',
  'redlock/failures': 'src/stores/redis/server/failures.ts',
  'postgres/failures': 'src/postgres/failures.ts',
  'etcd/failures': 'src/stores/etcd/grpc/failures.ts',
}

test.each(stores)('the store $name has the files of every store', ({ name }) => {
  const roles = ['index', `${name}-store`, 'options', 'open', 'driver', 'failures', 'doctor']
  const missing = roles.filter((role) => !sources.includes(`src/stores/${name}/${role}.ts`))
  const elsewhere = Object.keys(ELSEWHERE).filter((place) => place.startsWith(`${name}/`))
  expect(missing.map((role) => `${name}/${role}`)).toEqual(elsewhere)
})

test('what a store has elsewhere is there', () => {
  const places = Object.values(ELSEWHERE).filter((place) => place.startsWith('src/'))
  expect(places.filter((place) => !sources.includes(place))).toEqual([])
})

test.each(stores)('the store $name is made in open.ts', ({ name }) => {
  const makers = sources.filter((path) => readProjectFile(path).includes(`export function ${name}Store(`))
  expect(makers).toEqual([ELSEWHERE[`${name}/open`] ?? `src/stores/${name}/open.ts`])
})
