import { mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { emptyProject, packTarball } from './empty-project.ts'

let tarball: ReturnType<typeof packTarball>
beforeAll(() => {
  tarball = packTarball()
})
afterAll(() => tarball[Symbol.dispose]())

const NEEDS = 'The sqlite store needs Node.js 22.16 or newer, or the package @photostructure/sqlite:'

// Where the runtime has an SQLite of its own, its command needs nothing else.
const hasOwnSqlite = process.getBuiltinModule('node:sqlite') !== undefined

test.each([
  ['in a project', 'project/', { 'package.json': '{}' }, 'npm install @photostructure/sqlite@1'],
  ['for all users', 'lib/', {}, 'npm install --global @photostructure/sqlite@1'],
  [
    'by npx',
    '.npm/_npx/0a1b2c/',
    { 'package.json': '{}' },
    'npx -p holdfast -p @photostructure/sqlite@1 holdfast …',
  ],
])('installed %s, the command says what installs an SQLite', async (_, place, files, advice) => {
  using project = emptyProject(tarball.path)
  for (const [name, text] of Object.entries(files)) project.write(place + name, text)
  mkdirSync(join(project.folder, place), { recursive: true })
  renameSync(join(project.folder, 'node_modules'), join(project.folder, place, 'node_modules'))
  const program = join(project.folder, place, 'node_modules/holdfast/dist/cli/main.js')
  const environment = { HOME: project.folder, XDG_STATE_HOME: undefined, HOLDFAST_STORE: undefined }
  const printed = await project.run(process.execPath, [program, 'run', 'k', '--', 'true'], environment)
  if (hasOwnSqlite) expect(printed).toBe('')
  else expect(printed).toBe(`holdfast: ${NEEDS} \`${advice}\`.\n\nended with 69`)
  rmSync(join(project.folder, place), { recursive: true })
})

test('the command starts the programs that are beside it', async () => {
  using project = emptyProject(tarball.path, ['@photostructure/sqlite'])
  const program = join(project.folder, 'node_modules/holdfast/dist/cli/main.js')
  const environment = { HOME: project.folder, XDG_STATE_HOME: undefined, HOLDFAST_STORE: undefined }
  const { version } = JSON.parse(await project.run('cat', ['node_modules/holdfast/package.json']))
  expect(await project.run(process.execPath, [program, '--version'])).toBe(`${version}\n`)
  const args = [program, 'run', 'k', '--', 'echo', 'under the lock']
  expect(await project.run(process.execPath, args, environment)).toBe('under the lock\n')
  const demo = [program, 'demo', '--for', '6s', '--kill-every', '1200ms']
  expect(await project.run(process.execPath, demo, environment)).not.toContain('ended with')
})

test('the command starts by loading few files', async () => {
  using project = emptyProject(tarball.path, ['@photostructure/sqlite'])
  const program = `
    const { basename } = require('node:path')
    process.on('exit', () => {
      const own = Object.keys(require.cache).filter((file) => /holdfast[\\\\/]dist/.test(file))
      console.log(...own.map((file) => basename(file)).sort())
    })
    process.argv.splice(1, 0, 'holdfast')
    require('./node_modules/holdfast/dist/cli/main.js')
  `
  const loaded = (...args: string[]) => project.run(process.execPath, ['--eval', program, '--', ...args])
  expect(await loaded('--version')).toContain('\nmain.js start.js\n')
  const run = await loaded('run', '--store', 'sqlite:./locks.db', 'k', '--', 'true')
  expect(run.trim().split(' ')).toEqual(expect.arrayContaining(['core.js', 'main.js', 'start.js']))
  expect(run.trim().split(' ').length).toBeLessThan(6)
})
