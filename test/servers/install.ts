import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, readdirSync } from 'node:fs'
import { delimiter, join } from 'node:path'

export interface BinaryPlace {
  /** The name of the distribution's package, if it differs from the name of the binary. */
  readonly packageName?: string
  /** The folders to search besides PATH, the best one first. */
  readonly folders?: () => readonly string[]
}

/**
 * The path of a server binary. The first that exists: the value of the environment variable of its name (`REDIS_SERVER`
 * for `redis-server`), the binary in PATH, the binary that the distribution's package of that name installs (Debian and
 * Ubuntu, as root).
 *
 * If none of these works, throws one sentence that says what to install. A test without its server is not a test.
 */
export function ensureBinary(name: string, { packageName = name, folders }: BinaryPlace = {}): string {
  const variable = name.toUpperCase().replaceAll('-', '_')
  const chosen = process.env[variable]
  if (chosen !== undefined && chosen !== '') {
    if (isExecutable(chosen)) return chosen
    throw new Error(`Expected ${variable} to be the path of an executable, got ${JSON.stringify(chosen)}`)
  }
  const found = findBinary(name, folders?.())
  if (found !== undefined) return found
  const failure = install(packageName)
  const installed = findBinary(name, folders?.())
  if (installed !== undefined) return installed
  throw new Error(
    `Expected ${name} to be installed for the tests, but it is not on PATH and ${failure}: ` +
      `install it with your package manager, or set ${variable} to its path.`,
  )
}

/** The `postgres` of the newest installed version. The package keeps each version in a folder of its own, off PATH. */
export function ensurePostgres(): string {
  return ensureBinary('postgres', { packageName: 'postgresql', folders: postgresFolders })
}

/** The package has another name than the binary. */
export function ensureEtcd(): string {
  return ensureBinary('etcd', { packageName: 'etcd-server' })
}

function postgresFolders(): readonly string[] {
  const versions = existsSync(POSTGRES_FOLDER) ? readdirSync(POSTGRES_FOLDER) : []
  return versions
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(POSTGRES_FOLDER, version, 'bin'))
}

const POSTGRES_FOLDER = '/usr/lib/postgresql'

function findBinary(name: string, first: readonly string[] = []): string | undefined {
  const path = (process.env['PATH'] ?? '').split(delimiter)
  const folders = [...first, ...path, '/usr/sbin', '/usr/local/sbin']
  return folders.map((folder) => join(folder, name)).find(isExecutable)
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

// Debian starts a server's service from the package's install script; policy-rc.d with exit code 101 forbids that. The
// shell removes the file itself, also on Ctrl-C, so that the machine does not keep refusing services.
const aptScript = `
set -e
if [ ! -e /usr/sbin/policy-rc.d ]; then
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  trap 'exit 130' INT TERM
  printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
  chmod +x /usr/sbin/policy-rc.d
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$1"
`

function install(name: string): string {
  if (findBinary('apt-get') === undefined) return 'there is no apt-get to install it with'
  if (process.getuid?.() !== 0) return `installing it needs root (apt-get install ${name})`
  console.log(`Installing ${name} with apt-get, because the tests run against the real one…`)
  const result = spawnSync('sh', ['-c', aptScript, 'sh', name], {
    encoding: 'utf8',
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 300_000,
  })
  const lastLine = (result.error?.message ?? result.stderr).trim().split('\n').at(-1)
  return `apt-get could not install it (${lastLine})`
}
