import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../', import.meta.url))

/** These files compute for minutes, so only `npm test` runs them. */
const LONG = [
  'test/simulation/',
  'test/law/mutation.',
  'test/law/small-rooms.',
  'test/queue/million.',
  'test/stores/sqlite/size.',
]

/**
 * The test files that run anywhere within two minutes. Neither they nor the test files that they import start a process (so
 * no server) or use the build. Paths are relative to the repository.
 */
export function unitTests(): readonly string[] {
  const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
  return files
    .filter((path) => path.endsWith('.test.ts') && !path.includes('node_modules'))
    .map((path) => join('test', path))
    .filter((path) => !LONG.some((start) => path.startsWith(start)))
    .filter((path) => !Array.from(reachableFrom(path)).some(needsMore))
    .sort()
}

function needsMore(path: string): boolean {
  // The guardian starts a program of the build.
  return /'node:child_process'|'[^']*\bdist\/|\/guardian\.ts'/.test(textOf(path))
}

/** The file, and all files below `test/` that it imports, directly or not. */
function reachableFrom(path: string, found: Set<string> = new Set()): ReadonlySet<string> {
  if (found.has(path)) return found
  found.add(path)
  for (const [, specifier = ''] of textOf(path).matchAll(/(?:from|import) '(\.[^']+\.ts)'$/gm)) {
    const imported = join(dirname(path), specifier)
    if (imported.startsWith('test/')) reachableFrom(imported, found)
  }
  return found
}

const texts = new Map<string, string>()

function textOf(path: string): string {
  const text = texts.get(path) ?? readFileSync(join(root, path), 'utf8')
  texts.set(path, text)
  return text
}
