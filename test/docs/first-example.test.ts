import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startRedis } from '../servers/redis-server.ts'
import { readProjectFile, root } from '../tidy/project.ts'

const readme = readProjectFile('README.md')
const [, file = '', argument = '', program = ''] =
  /^```sh\nnpm install holdfast\n```\n\nSave this as `(.+)`, and run `node (.+)`:\n\n```ts\n(.*?)^```$/ms.exec(
    readme,
  ) ?? []

test('the first example of the README runs as it is printed, in a project with no other package', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-readme-'))
  try {
    const own = join(folder, 'node_modules/holdfast')
    for (const part of ['dist', 'package.json'])
      cpSync(join(root, part), join(own, part), { recursive: true })
    writeFileSync(join(folder, file), program)
    const lines = (await run(folder, {})).replaceAll(/\d+/g, 'N').split('\n')
    expect(lines).toEqual([
      'Ada pays under fence N',
      'Ada is done',
      'Grace pays under fence N',
      'Grace is done',
      '',
    ])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('it takes turns with itself in a second terminal, over the store that the README names', async () => {
  expect(readme).toContain(`\`npm install ioredis\` and \`STORE=redis://localhost:6379 node ${file}\``)
  await using redis = await startRedis()
  // Inside the repository, where ioredis is installed.
  mkdirSync(join(root, '.docs'), { recursive: true })
  const folder = mkdtempSync(join(root, '.docs/readme-'))
  try {
    writeFileSync(join(folder, file), program)
    const terminals = await Promise.all([
      run(folder, { STORE: redis.url }),
      run(folder, { STORE: redis.url }),
    ])
    const fences = Array.from(terminals.join().matchAll(/fence (\d+)/g), ([, fence]) => fence)
    expect(new Set(fences).size).toBe(4)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

async function run(cwd: string, env: Record<string, string>): Promise<string> {
  const ran = promisify(execFile)(process.execPath, [argument], { cwd, env: { ...process.env, ...env } })
  const { stdout, stderr } = await ran
  expect(stderr).toBe('')
  return stdout
}
