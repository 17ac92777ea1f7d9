import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { entriesOf, manifestOf } from '../../scripts/entries.ts'
import { type EmptyProject, emptyProject, packTarball, toolFolder } from './empty-project.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
/** Entries for which the user has a package of its own, with types of its own. */
const OVER_ANOTHER = /nestjs|fastify|otel|prometheus|worker\/machine/

let tarball: ReturnType<typeof packTarball>
let project: EmptyProject
beforeAll(() => {
  tarball = packTarball()
  project = emptyProject(tarball.path, ['@types/node', 'undici-types'])
  project.write('commonjs.cts', PROGRAM)
  project.write('module.mts', PROGRAM)
  project.write('program.ts', PROGRAM)
})
afterAll(() => {
  project[Symbol.dispose]()
  tarball[Symbol.dispose]()
})

const names = entriesOf(manifestOf(root))
  .map(({ subpath }) => `holdfast${subpath.slice(1)}`)
  .filter((name) => !OVER_ANOTHER.test(name))

/** Uses a class, a generic and a type, and mentions every entry. */
const PROGRAM = `
  import { connect, createLocks, InvalidArgumentError, type Lease, type Locks } from 'holdfast'
  import { memoryStore } from 'holdfast/memory'
  ${names.map((name, index) => `import * as entry${index} from '${name}'`).join('\n  ')}
  export const entries: object[] = [${names.map((_, index) => `entry${index}`)}]
  export async function main(): Promise<number> {
    const locks: Locks = await connect('memory:', { ttl: '5s' })
    const length: number = await locks.withLock('k', async (lease: Lease) => lease.key.length)
    const error: unknown = new InvalidArgumentError('x')
    if (error instanceof InvalidArgumentError) console.log(error.code satisfies string)
    await createLocks(memoryStore()).close()
    // @ts-expect-error: a fence is a bigint.
    await locks.withLock('k', (lease) => lease.fence satisfies string)
    return length
  }
`

/** As strict as a user can be. */
const STRICT = [
  ...['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess', '--skipLibCheck', 'false'],
  ...['--noEmit', '--types', 'node'],
]

async function check(
  typescript: string,
  files: readonly string[],
  ...options: readonly string[]
): Promise<string> {
  const folder = typescript === '7' ? join(root, 'node_modules/typescript') : toolFolder(typescript)
  return project.run(process.execPath, [join(folder, 'bin/tsc'), ...options, ...files])
}

describe.each(['typescript54', 'typescript57', 'typescript', 'typescript6', '7'])('with %s', (typescript) => {
  const isOld = /5[47]?$|^typescript$/.test(typescript)
  const target = ['--target', 'es2022', '--lib', 'es2023,esnext.disposable']
  const both = ['commonjs.cts', 'module.mts']
  const ways: [string, string[], string[]][] = [
    [
      'module: commonjs, as `tsc --init` wrote it',
      ['program.ts'],
      ['--module', 'commonjs', '--esModuleInterop'],
    ],
    ['module: node16, CommonJS and an ES module', both, ['--module', 'node16']],
    ['module: nodenext, CommonJS and an ES module', both, ['--module', 'nodenext']],
    ['moduleResolution: bundler', ['program.ts'], ['--module', 'esnext', '--moduleResolution', 'bundler']],
  ]
  // The oldest and the newest version are asked in all ways. Those between them differ from both in little.
  const asked = /^typescript54$|^7$/.test(typescript) ? ways : ways.slice(0, 2)
  test.each(asked)('every entry has its types: %s', async (_, files, options) => {
    const resolution = isOld && options.includes('commonjs') ? ['--moduleResolution', 'node10'] : []
    expect(await check(typescript, files, ...STRICT, ...target, ...options, ...resolution)).toBe('')
  })
})

test('every entry has its types with the defaults of TypeScript 7', async () => {
  expect(await check('7', ['module.mts'], '--noEmit', '--types', 'node')).toBe('')
})

test.each(['typescript54', '7'])(
  'the machine of the lock worker has no error of its own with %s',
  async (typescript) => {
    const file = project.write('machine.mts', MACHINE)
    const options = ['--target', 'es2022', '--lib', 'es2023,esnext.disposable', '--module', 'nodenext']
    const said = await check(typescript, [file], ...STRICT, ...options)
    // XState's own declarations do not compile with exactOptionalPropertyTypes.
    const errors = said.split('\n').filter((line) => line.includes(': error '))
    expect(errors.filter((line) => !line.includes('node_modules/xstate/'))).toEqual([])
    expect(await check(typescript, [file], ...STRICT, ...options, '--skipLibCheck', 'true')).toBe('')
  },
)

const MACHINE = `
  import { callbackLock, lockWorkerMachine } from 'holdfast/worker/machine'
  import { createActor } from 'xstate'
  const lock = callbackLock({ ttl: '1s', acquire: async () => 'me', renew: async (me) => me === 'me', release() {} })
  const machine = lockWorkerMachine.provide({ delays: { releaseTimeout: 100 } })
  const input = { lock, start() {}, stop() {}, grace: '1s', backoff: '1s', maxBackoff: '1s', chance: Math.random }
  export const value = createActor(machine, { input }).getSnapshot().value satisfies string | object
`

test('without the types of Node.js nothing is missing but those of Node.js itself', async () => {
  const said = await check('7', [project.write('core.mts', CORE)], '--noEmit', '--skipLibCheck', 'false')
  expect(said).toBe('')
})

const CORE = `
  import { createLocks } from 'holdfast'
  import { memoryStore } from 'holdfast/memory'
  export const locks = createLocks(memoryStore())
`
