import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { root } from './project.ts'

// Imports against the arrows of the architecture, by file. The linter enforces the arrows. The test makes each of these
// imports in a copy, to see that the linter reports it.
const forbidden: Record<string, string[]> = {
  'src/contract/store.ts': ['../law/law.ts', '../engine/renewal-loop.ts', 'node:fs', 'ioredis'],
  'src/law/law.ts': [
    '../engine/renewal-loop.ts',
    '../stores/memory/index.ts',
    '../index.ts',
    'node:crypto',
    '@a/b',
  ],
  'src/engine/renewal-loop.ts': [
    '../law/law.ts',
    '../stores/memory/index.ts',
    '../primitives/mutex.ts',
    'node:os',
  ],
  'src/engine/ids.ts': ['../stores/memory/index.ts', 'ioredis'],
  'src/primitives/mutex.ts': ['../stores/memory/index.ts', '../index.ts', 'node:async_hooks', 'node:fs'],
  'src/primitives/held-keys.ts': ['node:fs', '../stores/memory/index.ts'],
  'src/stores/drivers.ts': ['./redis/index.ts', '../index.ts', 'ioredis'],
  'src/stores/redis/redis-store.ts': [
    '../../engine/renewal-loop.ts',
    '../../primitives/mutex.ts',
    '../../index.ts',
    '../../testing/index.ts',
    '../sqlite/sqlite-store.ts',
  ],
  'src/stores/redlock/redlock-server.ts': [
    '../redis/redis-store.ts',
    '../redis/index.ts',
    '../redis/cluster/map.ts',
    '../drivers.ts',
    '../../index.ts',
  ],
  'src/stores/redis/server/connection.ts': [
    '../redis-store.ts',
    '../lua/scripts.generated.ts',
    '../cluster/map.ts',
    '../../driver.ts',
  ],
  'src/stores/redis/sentinel/link.ts': ['../cluster/map.ts', '../../redlock/index.ts', '../../../index.ts'],
  'src/stores/postgres/advisory/session.ts': ['../postgres-store.ts', '../../../index.ts'],
  'src/postgres/listener.ts': ['../stores/postgres/index.ts', '../index.ts', '../contract/store.ts'],
  'src/queue/queue.ts': [
    '../engine/renewal-loop.ts',
    '../law/law.ts',
    '../stores/redis/redis-store.ts',
    'node:events',
  ],
  'src/worker/worker.ts': ['../primitives/mutex.ts', '../contract/store.ts'],
  'src/cli/run.ts': ['../engine/renewal-loop.ts', '../stores/sqlite/sqlite-store.ts'],
  'src/cli/demo/demo.ts': ['../../engine/renewal-loop.ts', '../../stores/sqlite/sqlite-store.ts'],
  'src/http/request.ts': ['../primitives/mutex.ts', 'node:http'],
  'src/nestjs/module.ts': ['../primitives/mutex.ts', 'node:http', '../http/request-locks.ts'],
  'src/dashboard/view.ts': [
    '../engine/renewal-loop.ts',
    '../stores/sqlite/sqlite-store.ts',
    '../cli/table.ts',
  ],
  'src/room-watch/room-watch.ts': ['../engine/renewal-loop.ts', '../contract/store.ts', 'node:fs'],
  'examples/hello.ts': ['../src/index.ts', './shared.ts'],
}
const allowed: Record<string, string[]> = {
  'src/contract/ok.ts': ['./store.ts', '../errors.ts'],
  'src/law/ok.ts': ['./law.ts', '../contract/store.ts', '../errors.ts'],
  'src/engine/ok.ts': ['./renewal-loop.ts', '../contract/store.ts', '../errors.ts'],
  'src/engine/events.ts': ['node:diagnostics_channel', '../contract/clock.ts'],
  'src/primitives/ok.ts': [
    './mutex.ts',
    '../engine/renewal-loop.ts',
    '../law/law.ts',
    '../law/law.ts',
    '../contract/store.ts',
  ],
  'src/stores/ok.ts': [
    './driver.ts',
    './redis/driver.ts',
    './redis/cluster/driver.ts',
    '../contract/store.ts',
  ],
  'src/stores/redis/ok.ts': [
    './redis-store.ts',
    './lua/scripts.generated.ts',
    '../../law/law.ts',
    '../../contract/store.ts',
    '../../postgres/executor.ts',
    '../../errors.ts',
    '../redis/index.ts',
    'node:net',
    'ioredis',
  ],
  'src/stores/redlock/ok.ts': ['../redis/server/connection.ts', '../driver.ts', '../../contract/store.ts'],
  'src/stores/redis/server/ok.ts': ['./connection.ts', '../../../contract/store.ts', 'ioredis'],
  'src/stores/redis/cluster/ok.ts': ['../server/connection.ts', '../redis-store.ts', '../../driver.ts'],
  'src/cli/ok.ts': [
    '../stores/drivers.ts',
    '../index.ts',
    '../stores/sqlite/index.ts',
    '../errors.ts',
    './run.ts',
    'node:fs',
  ],
  'src/cli/demo/ok.ts': ['../../index.ts', '../../stores/sqlite/index.ts', '../run.ts', '../../errors.ts'],
  'src/cli/top/jobs/ok.ts': [
    '../../../jobs/index.ts',
    '../../../base/explained.ts',
    '../../table.ts',
    '../keys.ts',
  ],
  'src/cli/top/ok.ts': ['../../room-watch/room-watch.ts', '../../base/duration.ts'],
  'src/dashboard/ok.ts': ['../room-watch/room-watch.ts', '../index.ts', '../base/duration.ts', 'node:http'],
  'src/room-watch/ok.ts': ['../index.ts', './room-history.ts'],
  'src/postgres/ok.ts': ['./executor.ts', '../base/duration.ts', '../errors.ts', 'node:timers', 'pg'],
  'src/jobs/ok.ts': ['../postgres/executor.ts', '../index.ts', './index.ts'],
  'src/queue/ok.ts': ['../index.ts', './queue.ts', '../errors.ts'],
  'src/nestjs/ok.ts': [
    '../http/index.ts',
    '../index.ts',
    '../errors.ts',
    'node:async_hooks',
    '@nestjs/common',
  ],
  'src/index.ts': ['./engine/renewal-loop.ts', './stores/memory/index.ts'],
  'examples/ok.ts': ['holdfast', 'holdfast/redis', 'node:timers/promises'],
}

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-boundaries-'))
  for (const path of ['biome.json', '.gitignore', 'package.json', 'tsconfig.json']) {
    copyFileSync(root + path, join(folder, path))
  }
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

test('imports against the arrows are errors, imports along them are not', () => {
  for (const [path, imports] of Object.entries({ ...forbidden, ...allowed })) {
    write(path, imports.map((specifier) => `import '${specifier}'\n`).join(''))
  }
  const expected = Object.entries(forbidden).flatMap(([path, imports]) =>
    imports.map((specifier, index) => `${path}:${index + 1} ${specifier}`),
  )
  const found = lint('style/noRestrictedImports').map(({ path, line }) => {
    const specifier = { ...forbidden, ...allowed }[path]?.[line - 1]
    return `${path}:${line} ${specifier}`
  })
  expect(found.sort()).toEqual(expected.sort())
})

test('an arrow is also crossed by import(), by a type and by a re-export', () => {
  write('src/law/import.ts', `await import('../engine/renewal-loop.ts')\n`)
  write(
    'src/law/type.ts',
    `import type { Keeper } from '../engine/renewal-loop.ts'\nexport type K = Keeper\n`,
  )
  write('src/law/export.ts', `export { keep } from '../engine/renewal-loop.ts'\n`)
  const crossing = lint('style/noRestrictedImports').map(({ path }) => path)
  expect(crossing).toEqual(
    expect.arrayContaining(['src/law/import.ts', 'src/law/type.ts', 'src/law/export.ts']),
  )
})

test('cycles, floating promises, clocks, any and default exports are errors', () => {
  write('src/law/hen.ts', `import { egg } from './egg.ts'\nexport const hen = () => egg\n`)
  write('src/law/egg.ts', `import { hen } from './hen.ts'\nexport const egg = () => hen\n`)
  write(
    'src/engine/floating.ts',
    `async function tell(): Promise<void> {}\nexport function go(): void {\n  tell()\n}\n`,
  )
  write('src/engine/clocks.ts', `export const now: number = Date.now()\nsetTimeout(() => {}, 1)\n`)
  write('src/engine/any.ts', `export const anything: any = 1\n`)
  write('src/engine/default.ts', `export default 1\n`)
  expect(lint('suspicious/noImportCycles').map(({ path }) => path)).toEqual([
    'src/law/egg.ts',
    'src/law/hen.ts',
  ])
  expect(lint('nursery/noFloatingPromises')).toEqual([{ path: 'src/engine/floating.ts', line: 3 }])
  expect(lint('style/noRestrictedGlobals')).toEqual([
    { path: 'src/engine/clocks.ts', line: 1 },
    { path: 'src/engine/clocks.ts', line: 2 },
  ])
  expect(lint('suspicious/noExplicitAny')).toEqual([{ path: 'src/engine/any.ts', line: 1 }])
  expect(lint('style/noDefaultExport')).toEqual([{ path: 'src/engine/default.ts', line: 1 }])
})

function write(path: string, text: string): void {
  mkdirSync(join(folder, dirname(path)), { recursive: true })
  writeFileSync(join(folder, path), text)
}

/** The places where the linter, with the repository's configuration, reports this rule as an error. */
function lint(rule: string): { path: string; line: number }[] {
  const args = ['lint', '--reporter=json', '--max-diagnostics=none', '--diagnostic-level=error']
  const { stdout } = spawnSync(`${root}node_modules/.bin/biome`, args, { cwd: folder, encoding: 'utf8' })
  const report = JSON.parse(stdout) as { diagnostics: Diagnostic[] }
  return report.diagnostics
    .filter(({ category }) => category === `lint/${rule}`)
    .map(({ location }) => ({ path: location.path, line: location.start.line }))
    .sort((a, b) => a.path.localeCompare(b.path) || a.line - b.line)
}

interface Diagnostic {
  readonly category: string
  readonly location: { readonly path: string; readonly start: { readonly line: number } }
}
