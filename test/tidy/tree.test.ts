import { basename } from 'node:path'
import { describe, expect, test } from 'vitest'
import { projectFiles, readProjectFile } from './project.ts'

const files = projectFiles()
const sources = files.filter((path) => path.startsWith('src/') && !path.endsWith('.generated.ts'))

describe('the tree', () => {
  test('has no source file that is too long to keep in the head', () => {
    const reasons: Record<string, string> = {
      'src/observe/prometheus/grafana-dashboard.json': 'Grafana reads and writes it, a line for each brace.',
    }
    const long = sources.filter((path) => readProjectFile(path).split('\n').length > 400)
    expect(long.filter((path) => reasons[path] === undefined)).toEqual([])
    expect(Object.keys(reasons).filter((path) => !long.includes(path))).toEqual([])
  })

  test('has no drawer for what belongs nowhere', () => {
    const drawers = /^(utils?|helpers?|commons?|misc|shared|types|constants)$/
    const parts = (path: string) => path.split('/').map((part) => basename(part).replace(/\..*$/, ''))
    expect(parts('src/engine/utils.test.ts').some((part) => drawers.test(part))).toBe(true)
    expect(files.filter((path) => parts(path).some((part) => drawers.test(part)))).toEqual([])
  })
})

// Each rule with a line that it must find, because a pattern that finds nothing in the tree may find nothing at all.
const unwanted: { what: string; pattern: RegExp; example: string; where?: RegExp }[] = [
  { what: 'a note to do it later', pattern: /\b(TODO|FIXME|XXX|HACK)\b/, example: '// TODO: the rest' },
  {
    what: 'a test that is left out or alone',
    pattern: /\b(test|it|describe|suite)(\.\w+)*\.(only|skip|todo|skipIf|runIf|fails)\b/,
    example: "test.concurrent.skip('x'",
    where: /\.test\.ts$|^src\/testing\//,
  },
  {
    what: 'a path of one machine',
    pattern: /(^|[\s'"`(=:])\/(work|root|home|tmp|Users)\/\w/,
    example: "'/home/me/x'",
  },
  {
    what: 'the host of a registry',
    pattern: /\bregistry\.[a-z]+\.[a-z]+|\bdeb\.debian\.org/,
    example: 'registry.x.org',
  },
  {
    what: 'a listener of examples that leaves the second signal to end the process in the middle of its shutdown',
    pattern: /process\.once\(['"]SIG/,
    example: "process.once('SIGTERM', () => worker.stop())",
    where: /^(docs|examples|src)\/|^README\.md$/,
  },
  {
    what: 'a download address in a lock file',
    pattern: /"resolved": "http/,
    example: '"resolved": "https://',
    where: /package-lock\.json$/,
  },
]

describe.each(unwanted)('$what', ({ pattern, example, where = /./ }) => {
  test('is nowhere in the repository', () => {
    expect(example).toMatch(pattern)
    const texts = files.filter((path) => !path.endsWith('.png') && path !== 'test/tidy/tree.test.ts')
    const scanned = texts.filter((path) => where.test(path))
    expect(scanned).not.toEqual([])
    const found = scanned.flatMap((path) =>
      readProjectFile(path)
        .split('\n')
        .flatMap((line, index) => (pattern.test(line) ? [`${path}:${index + 1} ${line.trim()}`] : [])),
    )
    expect(found).toEqual([])
  })
})
