import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { entriesOf, manifestOf } from '../../scripts/entries.ts'
import { type EmptyProject, emptyProject, packTarball, toolFolder } from './empty-project.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const entries = entriesOf(manifestOf(root))

let tarball: ReturnType<typeof packTarball>
let project: EmptyProject
let folder: string
beforeAll(() => {
  tarball = packTarball()
  project = emptyProject(tarball.path, ['@types/node'])
  folder = join(project.folder, 'node_modules/holdfast')
  project.write('ask.mjs', ASK)
})
afterAll(() => {
  project[Symbol.dispose]()
  tarball[Symbol.dispose]()
})

/** Asks TypeScript, as an editor does, where each name in the lines of a file is defined: `0:12` is one in the first line. */
const ASK = `
  import { spawn } from 'node:child_process'
  import { createInterface } from 'node:readline'
  const [, , tsserver, file, ...places] = process.argv
  const server = spawn(process.execPath, [tsserver, '--disableAutomaticTypingAcquisition'])
  let seq = 0
  const send = (command, args) => server.stdin.write(JSON.stringify({ seq: seq++, type: 'request', command, arguments: args }) + '\\n')
  send('open', { file })
  for (const place of places) {
    const [line, offset] = place.split(':').map(Number)
    send('definition', { file, line: line + 1, offset: offset + 1 })
  }
  const found = []
  for await (const line of createInterface({ input: server.stdout })) {
    const message = line.startsWith('{') ? JSON.parse(line) : {}
    if (message.command !== 'definition') continue
    found.push((message.body ?? []).map(({ file, start }) => file + ':' + start.line))
    if (found.length === places.length) send('exit')
  }
  console.log(JSON.stringify(found))
`

/** The names that an entry exports, by its declarations. */
function namesOf(module: string): string[] {
  const text = readFileSync(join(folder, 'dist', `${module}.d.ts`), 'utf8')
  const lists = [...text.matchAll(/^export \{ (.*) \} from/gm)].map(([, list = '']) => list)
  return lists
    .flatMap((list) => list.split(', '))
    .map((name) => name.replace(/^type |^.* as /g, ''))
    .filter((name) => name !== 'default')
}

test.each(['mts', 'cts'])('leads from every public name in a .%s file to its source', async (extension) => {
  const names = entries.map(({ module }) => namesOf(module))
  const lines = entries.map(
    ({ subpath }, index) => `import { ${names[index]?.join(', ')} } from 'holdfast${subpath.slice(1)}'`,
  )
  const file = project.write(`program.${extension}`, `${lines.join('\n')}\n`)
  const places = names.flatMap((list, line) =>
    list.map((name) => ({ name, at: `${line}:${lines[line]?.search(new RegExp(`\\b${name}\\b`))}` })),
  )
  const tsserver = join(toolFolder('typescript'), 'lib/tsserver.js')
  const args = ['ask.mjs', tsserver, file, ...places.map(({ at }) => at)]
  const found = JSON.parse(await project.run(process.execPath, args)) as string[][]
  const astray = places.flatMap(({ name }, index) => {
    const led = found[index] ?? []
    return led.length > 0 && led.every((place) => isDefinition(place, name)) ? [] : [`${name}: ${led}`]
  })
  expect(astray).toEqual([])
  expect(places.length).toBeGreaterThan(300)
})

function isDefinition(place: string, name: string): boolean {
  const [, path = '', line = ''] = /^(.*):(\d+)$/.exec(place) ?? []
  if (!path.startsWith(join(folder, 'src'))) return false
  return readFileSync(path, 'utf8').split('\n')[Number(line) - 1]?.includes(name) === true
}

test('leads on from source to source', () => {
  const sources = readdirSync(join(folder, 'src'), { recursive: true, encoding: 'utf8' })
  const missing = sources
    .filter((source) => source.endsWith('.ts') && !source.endsWith('.generated.ts'))
    .flatMap((source) => {
      const path = join(folder, 'src', source)
      const imported = readFileSync(path, 'utf8').matchAll(/^(?:import|export|\}) .*from '(\..*)'$/gm)
      return [...imported]
        .filter(([, target = '']) => !existsSync(join(dirname(path), target)))
        .map(([, target = '']) => `${source}: ${basename(target)}`)
    })
  expect(missing).toEqual([])
  expect(sources.length).toBeGreaterThan(300)
})
