import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { freePort } from '../servers/free-port.ts'
import { until } from '../servers/until.ts'
import { projectFiles, readProjectFile, root } from '../tidy/project.ts'

const pages = projectFiles().filter((path) => /^docs\/cookbook-.*\.md$/.test(path))

/** What the pages print under the name of a file: its name and the text. */
const printed: ReadonlyMap<string, string> = new Map(
  pages.flatMap((page) =>
    Array.from(
      readProjectFile(page).matchAll(/^`([^`\n]+)`[^\n]*:\n\n```(?:ts|sh|yaml)\n(.*?)^```$/gms),
      ([, name = '', text = '']) => [name, text] as const,
    ),
  ),
)

/** The names of all programs of the cookbook. */
export const programs: readonly string[] = [...printed.keys()].filter((name) => !name.endsWith('.yaml'))

export function textOf(name: string): string {
  const text = printed.get(name)
  if (text === undefined) throw new Error(`No page of the cookbook prints ${name}`)
  return text
}

/** A folder with the programs as a reader saves them, and with `others` beside them. */
export function saveAll(others: Readonly<Record<string, string>>): { folder: string; remove(): void } {
  mkdirSync(join(root, '.docs'), { recursive: true })
  // Inside the project, because that is where the programs' packages are found.
  const folder = mkdtempSync(join(root, '.docs/cookbook-'))
  const files = { ...Object.fromEntries(programs.map((name) => [basename(name), textOf(name)])), ...others }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text, { mode: 0o755 })
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) }
}

export interface Running extends AsyncDisposable {
  readonly port: number
  readonly child: ChildProcess
  /** What it has printed, line by line. */
  lines(): string[]
  untilSays(text: string): Promise<void>
  /** The exit code, after `signal` if one is given. */
  end(signal?: NodeJS.Signals): Promise<number | null>
}

/** Runs a program against the built package, with a port of its own. */
export async function start(path: string, env: NodeJS.ProcessEnv): Promise<Running> {
  const port = await freePort()
  const args = path.endsWith('.sh')
    ? []
    : ['--no-warnings', ...websocket, '--import', import.meta.resolve('tsx')]
  const child = spawn(path.endsWith('.sh') ? 'sh' : process.execPath, [...args, path], {
    env: {
      ...process.env,
      PORT: String(port),
      // Without the repository's path mapping, so that `holdfast` is what package.json exports.
      TSX_TSCONFIG_PATH: join(root, 'test/docs/examples.tsconfig.json'),
      ...env,
    },
  })
  let said = ''
  let complaints = ''
  child.stdout.on('data', (text) => {
    said += text
  })
  child.stderr.on('data', (text) => {
    complaints += text
  })
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null
  return {
    port,
    child,
    lines: () => said.split('\n').filter(Boolean),
    async untilSays(text) {
      await until(`${basename(path)} says ${text}`, () => {
        if (hasEnded() && !said.includes(text)) throw new Error(`It has ended: ${complaints}`)
        return said.includes(text)
      })
    },
    async end(signal) {
      if (signal !== undefined) child.kill(signal)
      if (!hasEnded()) await once(child, 'exit')
      if (complaints !== '') throw new Error(complaints)
      return child.exitCode
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      if (!hasEnded()) await once(child, 'exit')
    },
  }
}

/** Node.js 20 has it behind a flag. */
const websocket = 'WebSocket' in globalThis ? [] : ['--experimental-websocket']
