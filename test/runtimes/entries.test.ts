import { readFileSync } from 'node:fs'
import { beforeAll, expect, test } from 'vitest'
import { ensureRuntimes, otherRuntimes, runUnder } from '../servers/runtimes.ts'

const root = new URL('../../', import.meta.url)
const manifest = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as { exports: unknown }
const entries = filesIn(manifest.exports).filter((file) => /\.[cm]?js$/.test(file))

beforeAll(ensureRuntimes, 600_000)

test.each(otherRuntimes)('every entry of the package can be imported on %s', async (runtime) => {
  const urls = entries.map((target) => new URL(target, root).href)
  const program = new URL('import-program.ts', import.meta.url)
  const { code, stdout, stderr } = await runUnder(runtime, [program, ...urls])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(Object.keys(JSON.parse(stdout)).sort()).toEqual([...urls].sort())
})

/** An export is a file, or a file for each condition. */
function filesIn(exported: unknown): readonly string[] {
  return typeof exported === 'string' ? [exported] : Object.values(exported as object).flatMap(filesIn)
}
