import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { installPackages } from '../servers/install-packages.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const toolsFolder = fileURLToPath(new URL('tools', import.meta.url))

/** A project of a user, with the package as it would be published and with nothing else but what is named. */
export interface EmptyProject extends Disposable {
  readonly folder: string
  write(path: string, text: string): string
  /** Puts a package beside that of this project, from a folder. */
  link(name: string, folder: string): void
  /** {@link runIn} its folder. */
  run(command: string, args: readonly string[], environment?: NodeJS.ProcessEnv): Promise<string>
}

/** Packs what is built: run `npm run build` first. */
export function packTarball(): { readonly path: string } & Disposable {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-tarball-'))
  const args = ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder]
  const name = execFileSync('npm', args, { cwd: root, encoding: 'utf8' }).trim()
  return {
    path: join(folder, name),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

/** `beside`: names of packages, of the tools or else of this repository. */
export function emptyProject(tarball: string, beside: readonly string[] = []): EmptyProject {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-project-'))
  const own = join(folder, 'node_modules/holdfast')
  mkdirSync(own, { recursive: true })
  execFileSync('tar', ['-xzf', tarball, '-C', own, '--strip-components=1'])
  const link = (name: string, target: string) => {
    mkdirSync(dirname(join(folder, 'node_modules', name)), { recursive: true })
    symlinkSync(target, join(folder, 'node_modules', name))
  }
  writeFileSync(join(folder, 'package.json'), '{}')
  for (const name of ['xstate', 'croner']) link(name, join(root, 'node_modules', name))
  for (const name of beside) link(name, folderOf(name))
  return {
    folder,
    link,
    write(path, text) {
      mkdirSync(dirname(join(folder, path)), { recursive: true })
      writeFileSync(join(folder, path), text)
      return join(folder, path)
    },
    run: (command, args, environment) => runIn(folder, command, args, environment),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

/** What a program printed and how it ended, with its standard error in front where it failed. */
export function runIn(
  folder: string,
  command: string,
  args: readonly string[],
  environment?: NodeJS.ProcessEnv,
): Promise<string> {
  return new Promise((resolve) => {
    const env = { ...process.env, NO_COLOR: '1', NODE_OPTIONS: '', ...environment }
    execFile(command, args, { cwd: folder, env, timeout: 150_000 }, (error, stdout, stderr) => {
      resolve(error === null ? stdout : `${stderr}${stdout}\nended with ${error.code ?? error.signal}`)
    })
  })
}

/** Where a package of the tools is; they are installed on first use. */
export function toolFolder(name: string): string {
  return installPackages(toolsFolder, name, ['--ignore-scripts'])
}

function folderOf(name: string): string {
  const path = join(root, 'node_modules', name)
  return existsSync(path) ? path : toolFolder(name)
}
