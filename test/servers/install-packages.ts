import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const nodeModules = fileURLToPath(new URL('../../node_modules', import.meta.url))

/**
 * Installs what the package.json of a folder lists, unless `path` is there below its node_modules. Several test files may need
 * the same packages at the same time: each installs them elsewhere and then moves them here, so none sees half of them.
 */
export function installPackages(folder: string, path: string, args: readonly string[] = []): string {
  const target = join(folder, 'node_modules')
  const wanted = join(target, path)
  if (existsSync(wanted)) return wanted
  mkdirSync(nodeModules, { recursive: true })
  const draft = mkdtempSync(join(nodeModules, '.installing-'))
  try {
    for (const name of ['package.json', 'package-lock.json', '.npmrc'])
      if (existsSync(join(folder, name))) copyFileSync(join(folder, name), join(draft, name))
    // Not `npm ci`: it wants packages for other systems in the lock file, and npm leaves some of them out of it.
    const npm = ['install', '--no-save', ...args, '--prefix', draft]
    const { error, status, stderr } = spawnSync('npm', npm, { encoding: 'utf8' })
    if (!existsSync(join(draft, 'node_modules', path)))
      throw new Error(
        `Expected npm install to install ${path} into ${folder}, it ended with ${status}: ${error?.message ?? stderr}`,
      )
    if (existsSync(wanted)) return wanted
    if (existsSync(target)) renameSync(target, join(draft, 'older'))
    renameSync(join(draft, 'node_modules'), target)
  } catch (error) {
    // Another test file was faster.
    if (!existsSync(wanted)) throw error
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  return wanted
}
