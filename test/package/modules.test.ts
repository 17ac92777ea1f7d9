import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type EmptyProject, emptyProject, packTarball } from './empty-project.ts'

let tarball: ReturnType<typeof packTarball>
let project: EmptyProject
beforeAll(() => {
  tarball = packTarball()
  project = emptyProject(tarball.path, [
    '@photostructure/sqlite',
    'prom-client',
    '@nestjs/common',
    '@nestjs/core',
    'reflect-metadata',
    'rxjs',
  ])
})
afterAll(() => {
  project[Symbol.dispose]()
  tarball[Symbol.dispose]()
})

function node(program: string, ...flags: string[]): Promise<string> {
  return project.run(process.execPath, [...flags, '--input-type=module', '--eval', `${IMPORTS}${program}`])
}

const IMPORTS = `
  import * as imported from 'holdfast'
  import { memoryStore } from 'holdfast/memory'
  import { createRequire } from 'node:module'
  const require = createRequire(process.cwd() + '/program.js')
  const required = require('holdfast')
`

describe('a program in CommonJS', () => {
  test('requires every entry where Node.js cannot require ES modules', async () => {
    project.write(
      'all.cjs',
      `
      const manifest = require('holdfast/package.json')
      for (const [subpath, target] of Object.entries(manifest.exports)) {
        if (typeof target === 'string' || /nestjs|otel/.test(subpath)) continue
        const { length } = Object.keys(require('holdfast' + subpath.slice(1)))
        if (length === 0) console.log(subpath, 'is empty')
      }
    `,
    )
    expect(await project.run(process.execPath, ['--no-experimental-require-module', 'all.cjs'])).toBe('')
  })

  test('connects to a file, and reads what is wrong where a client is not installed', async () => {
    project.write(
      'connects.cjs',
      `
      const { connect, InvalidArgumentError } = require('holdfast')
      async function main() {
        const locks = await connect('sqlite:./locks.db')
        console.log(await locks.withLock('k', ({ fence }) => fence > 0n))
        await locks.close()
        for (const url of ['redis://localhost', 'postgres://localhost/x', 'etcd://localhost']) {
          const error = await connect(url).catch((error) => error)
          console.log(error instanceof InvalidArgumentError, error.message)
        }
      }
      main()
    `,
    )
    const printed = await project.run(process.execPath, ['--no-experimental-require-module', 'connects.cjs'])
    expect(printed.trim().split('\n')).toEqual([
      'true',
      'true Expected the package `ioredis` or `redis` to be installed, got neither. Add one of them: `npm install ioredis`.',
      'true Expected the package `pg` or `postgres` to be installed, got neither. Add one of them: `npm install pg`.',
      'true Expected the package `@grpc/grpc-js` to be installed, got none. Add it: `npm install @grpc/grpc-js`.',
    ])
  })
})

describe('a process that imports the package and requires it', () => {
  test('has two copies of the code', async () => {
    expect(await node('console.log(imported.connect === required.connect)')).toBe('false\n')
  })

  test('knows an error of either by its class', async () => {
    const printed = await node(`
      const classes = ['HoldfastError', 'AcquireTimeoutError', 'StoreError', 'InvalidArgumentError']
      const error = await required.connect('nothing:').catch((error) => error)
      for (const name of classes) console.log(name, error instanceof required[name], error instanceof imported[name])
      class Own extends imported.HoldfastError {}
      console.log(error instanceof Own, new Own('closed', 'x') instanceof Own, new Own('closed', 'x') instanceof required.HoldfastError)
      console.log(Object.assign(new Error('of another library'), { code: 'conflict' }) instanceof imported.ConflictError)
    `)
    expect(printed.trim().split('\n')).toEqual([
      'HoldfastError true true',
      'AcquireTimeoutError false false',
      'StoreError false false',
      'InvalidArgumentError true true',
      'false true true',
      'false',
    ])
  })

  test('hears the events of both, and takes a store of the other', async () => {
    const printed = await node(`
      imported.lockEvents.on('acquired', ({ key }) => console.log('imported hears', key))
      required.lockEvents.on('acquired', ({ key }) => console.log('required hears', key))
      const locks = required.createLocks(memoryStore())
      await locks.withLock('k', () => {})
      await locks.close()
    `)
    expect(printed.trim().split('\n').sort()).toEqual(['imported hears k', 'required hears k'])
  })

  test('finds calls that wait for one another, across both', async () => {
    const printed = await node(`
      const one = imported.createLocks(memoryStore())
      const other = required.createLocks(memoryStore())
      let ready = 0
      let go
      const both = new Promise((resolve) => { go = resolve })
      const arrived = () => { if (++ready === 2) go(); return both }
      const ends = await Promise.allSettled([
        one.withLock('a', async () => { await arrived(); await other.withLock('b', () => {}) }),
        other.withLock('b', async () => { await arrived(); await one.withLock('a', () => {}) }),
      ])
      console.log(ends.map(({ reason }) => reason?.code).sort().join())
      await one.close()
      await other.close()
    `)
    expect(printed).toBe('deadlock,\n')
  })

  test('looks at the queue of a key in which calls of both stand', async () => {
    const printed = await node(`
      const store = memoryStore()
      const [one, other] = [imported.createLocks(store), required.createLocks(store)]
      const steps = []
      const [mayRead, mayTake] = [later(), later()]
      function later() {
        let resolve
        return { promise: new Promise((done) => { resolve = done }), resolve }
      }
      const turn = () => new Promise((resolve) => setTimeout(resolve, 20))
      const reader = one.readWrite('a').read(async () => {
        await mayTake.promise
        await one.withLock('b', () => steps.push('took b'))
      })
      const holder = one.withLock('b', async () => {
        await mayRead.promise
        await one.readWrite('a').read(() => steps.push('read behind the writer'))
      })
      await turn()
      const writer = other.readWrite('a').write({ wait: '500ms' }, () => {})
      for (const go of [mayRead.resolve, mayTake.resolve]) {
        await turn()
        go()
      }
      for (const each of [writer, holder, reader]) await each.catch((error) => steps.push(error.code ?? error.message))
      console.log(steps.sort().join())
      await one.close()
      await other.close()
    `)
    expect(printed).toBe('acquire-timeout,read behind the writer,took b\n')
  })

  test('counts in one registry, and gives NestJS the same tokens', async () => {
    const printed = await node(`
      import { Registry } from 'prom-client'
      import { measureLocks } from 'holdfast/observe/prometheus'
      import { LOCKS } from 'holdfast/nestjs'
      const registry = new Registry()
      const stops = [measureLocks({ registry }), require('holdfast/observe/prometheus').measureLocks({ registry })]
      for (const stop of stops) stop()
      console.log(registry.getMetricsAsArray().length, LOCKS === require('holdfast/nestjs').LOCKS)
    `)
    expect(printed).toBe('0 true\n')
  })

  test('runs jobs and leaders of NestJS whose decorators are those of the other copy', async () => {
    const printed = await node(`
      import 'reflect-metadata'
      import { Module } from '@nestjs/common'
      import { NestFactory } from '@nestjs/core'
      import { HoldfastModule } from 'holdfast/nestjs'
      const { OnLeadership, Scheduled } = require('holdfast/nestjs')
      const ran = new Set()
      let both
      const bothRan = new Promise((resolve) => { both = resolve })
      const run = (name) => { ran.add(name); if (ran.size === 2) both() }
      class Work {
        tick() { run('tick') }
        lead() { run('lead') }
      }
      const at = (name) => [Work.prototype, name, Object.getOwnPropertyDescriptor(Work.prototype, name)]
      Scheduled('tick', '* * * * * *')(...at('tick'))
      OnLeadership('lead')(...at('lead'))
      class App {}
      Module({ imports: [HoldfastModule.forRoot({ store: 'memory:' })], providers: [Work] })(App)
      const app = await NestFactory.createApplicationContext(App, { logger: ['error'] })
      await bothRan
      console.log([...ran].sort().join())
      await app.close()
    `)
    expect(printed).toBe('lead,tick\n')
  })

  test('ends at a signal that workers of both wait for', async () => {
    const printed = await node(`
      import { createLockWorker } from 'holdfast/worker'
      const locks = imported.createLocks(memoryStore())
      const work = { start() {}, stop() {} }
      const makers = [createLockWorker, require('holdfast/worker').createLockWorker]
      for (const [index, make] of makers.entries()) {
        const worker = make(locks, 'worker ' + index, work)
        worker.stopOn(['SIGTERM'])
        worker.start()
      }
      setInterval(() => {}, 1000)
      setImmediate(() => process.kill(process.pid, 'SIGTERM'))
    `)
    expect(printed).toBe('\nended with SIGTERM')
  })
})
