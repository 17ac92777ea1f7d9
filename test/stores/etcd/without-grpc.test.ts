import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'

/** A project that has installed holdfast, but no package for gRPC. */
const root = fileURLToPath(new URL('../../../', import.meta.url))
const run = promisify(execFile)
let project: string
beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'holdfast-without-grpc-'))
  const installed = join(project, 'node_modules')
  mkdirSync(join(installed, 'holdfast'), { recursive: true })
  mkdirSync(join(installed, '@types'))
  for (const part of ['dist', 'package.json'])
    cpSync(join(root, part), join(installed, 'holdfast', part), { recursive: true })
  for (const other of ['croner', 'xstate', '@types/node', 'undici-types'])
    symlinkSync(join(root, 'node_modules', other), join(installed, other))
  writeFileSync(join(project, 'package.json'), '{ "type": "module" }')
})
afterAll(() => rmSync(project, { recursive: true, force: true }))

test('the first call of a store, and opening one by a URL, say what to install', async () => {
  const program = `
    import { connect, createLocks, diagnose } from 'holdfast'
    import { etcdStore } from 'holdfast/etcd'
    const locks = createLocks(etcdStore({ endpoints: ['http://127.0.0.1:1'] }))
    const url = 'etcd://app:sesame@127.0.0.1:1'
    for (const call of [() => locks.tryAcquire('k'), () => connect(url), () => diagnose(url)])
      await call().catch(({ code, message }) => console.log(code, message))
    await locks.close()
  `
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', program], { cwd: project })
  const sentence =
    'Expected the package `@grpc/grpc-js` to be installed, got none. Add it: `npm install @grpc/grpc-js`.'
  const codes = ['store-refused', 'invalid-argument', 'invalid-argument']
  expect(stdout.trimEnd().split('\n')).toEqual(codes.map((code) => `${code} ${sentence}`))
})

test('its types are complete for whoever has the compiler look into packages', async () => {
  writeFileSync(
    join(project, 'program.ts'),
    `import { createLocks } from 'holdfast'
     import { type EtcdStoreOptions, etcdStore, openEtcd } from 'holdfast/etcd'
     const options: EtcdStoreOptions = { endpoints: ['http://localhost:2379'] }
     export const locks = createLocks(etcdStore(options))
     export const opened = openEtcd('etcd://localhost')`,
  )
  const options = [
    '--noEmit',
    '--strict',
    '--module',
    'nodenext',
    '--skipLibCheck',
    'false',
    '--types',
    'node',
  ]
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  const compiled = await run(process.execPath, [compiler, ...options, 'program.ts'], { cwd: project }).catch(
    ({ stdout }: { stdout: string }) => ({ stdout }),
  )
  expect(compiled.stdout).toBe('')
})
