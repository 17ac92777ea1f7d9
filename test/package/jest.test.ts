import { afterAll, beforeAll, expect, test } from 'vitest'
import { emptyProject, packTarball, toolFolder } from './empty-project.ts'

let tarball: ReturnType<typeof packTarball>
beforeAll(() => {
  tarball = packTarball()
})
afterAll(() => tarball[Symbol.dispose]())

const TESTS = `
  test('locks', async () => {
    const locks = await connect('sqlite:./locks.db')
    expect(await locks.withLock('k', ({ key }) => key)).toBe('k')
    await locks.close()
  })
  test('says what is wrong', async () => {
    await expect(connect('redis://localhost')).rejects.toThrow('npm install ioredis')
    await expect(connect('redis://localhost')).rejects.toBeInstanceOf(InvalidArgumentError)
  })
`

test('Jest runs tests of the package without a flag', async () => {
  using project = emptyProject(tarball.path, ['@photostructure/sqlite'])
  project.write('locks.test.js', `const { connect, InvalidArgumentError } = require('holdfast')\n${TESTS}`)
  const printed = await project.run(process.execPath, [`${toolFolder('jest')}/bin/jest.js`, '--ci'])
  expect(printed).not.toContain('ended with')
})

test('a NestJS application as its starter makes it compiles, is tested by ts-jest, and runs', async () => {
  const older = [
    '@nestjs/common',
    '@nestjs/core',
    '@nestjs/platform-express',
    '@nestjs/testing',
    'typescript',
  ]
  using project = emptyProject(tarball.path, [
    ...['reflect-metadata', 'rxjs', '@types/node', 'undici-types', '@types/jest', '@photostructure/sqlite'],
    'ts-jest',
  ])
  for (const name of older) project.link(name, toolFolder(name))
  for (const [path, text] of Object.entries(STARTER)) project.write(path, text)
  const jest = await project.run(process.execPath, [`${toolFolder('jest')}/bin/jest.js`, '--ci'])
  expect(jest).not.toContain('ended with')
  expect(await project.run(process.execPath, [`${toolFolder('typescript')}/bin/tsc`])).toBe('')
  expect(await project.run(process.execPath, ['dist/main.js'])).toBe('Hello World!\n')
})

/** What `nest new` of version 11 writes, as far as it matters: CommonJS, `module: nodenext`, ts-jest. */
const STARTER = {
  'package.json': JSON.stringify({
    jest: {
      moduleFileExtensions: ['js', 'json', 'ts'],
      rootDir: 'src',
      testRegex: '.*\\.spec\\.ts$',
      transform: { '^.+\\.(t|j)s$': 'ts-jest' },
      testEnvironment: 'node',
    },
  }),
  'tsconfig.json': JSON.stringify({
    compilerOptions: {
      module: 'nodenext',
      moduleResolution: 'nodenext',
      resolvePackageJsonExports: true,
      esModuleInterop: true,
      isolatedModules: true,
      declaration: true,
      removeComments: true,
      emitDecoratorMetadata: true,
      experimentalDecorators: true,
      allowSyntheticDefaultImports: true,
      target: 'ES2023',
      sourceMap: true,
      outDir: './dist',
      baseUrl: './',
      incremental: true,
      skipLibCheck: true,
      strictNullChecks: true,
      forceConsistentCasingInFileNames: true,
      noImplicitAny: false,
      strictBindCallApply: false,
      noFallthroughCasesInSwitch: false,
    },
    include: ['src'],
  }),
  'src/app.service.ts': `
    import { Injectable } from '@nestjs/common'
    import { currentLock, WithLock } from 'holdfast/nestjs'
    @Injectable()
    export class AppService {
      @WithLock('hello')
      async getHello(): Promise<string> {
        currentLock().lease.assertHeld()
        return 'Hello World!'
      }
    }
  `,
  'src/app.controller.ts': `
    import { Controller, Get } from '@nestjs/common'
    import { AppService } from './app.service'
    @Controller()
    export class AppController {
      constructor(private readonly appService: AppService) {}
      @Get()
      getHello(): Promise<string> {
        return this.appService.getHello()
      }
    }
  `,
  'src/app.module.ts': `
    import { Module } from '@nestjs/common'
    import { HoldfastModule } from 'holdfast/nestjs'
    import { AppController } from './app.controller'
    import { AppService } from './app.service'
    @Module({
      imports: [HoldfastModule.forRoot({ store: 'memory:' })],
      controllers: [AppController],
      providers: [AppService],
    })
    export class AppModule {}
  `,
  'src/main.ts': `
    import { NestFactory } from '@nestjs/core'
    import { AppModule } from './app.module'
    async function bootstrap() {
      const app = await NestFactory.create(AppModule, { logger: ['error'] })
      await app.listen(0, '127.0.0.1')
      const { port } = app.getHttpServer().address()
      console.log(await (await fetch('http://127.0.0.1:' + port)).text())
      await app.close()
    }
    bootstrap()
  `,
  'src/app.controller.spec.ts': `
    import { Test } from '@nestjs/testing'
    import { LOCKS } from 'holdfast/nestjs'
    import type { Locks } from 'holdfast'
    import { AppController } from './app.controller'
    import { AppModule } from './app.module'
    describe('AppController', () => {
      it('answers under its lock', async () => {
        const app = await Test.createTestingModule({ imports: [AppModule] }).compile()
        await app.init()
        expect(await app.get(AppController).getHello()).toBe('Hello World!')
        expect(await app.get<Locks>(LOCKS).tryAcquire('hello')).not.toBeNull()
        await app.close()
      })
    })
  `,
}
