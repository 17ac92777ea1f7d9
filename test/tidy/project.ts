import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The repository's root, with a slash at its end. */
export const root: string = fileURLToPath(new URL('../../', import.meta.url))

export function readProjectFile(path: string): string {
  return readFileSync(root + path, 'utf8')
}

/** Every file that is or would be committed, relative to the root. Files that git ignores are left out. */
export function projectFiles(): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--deduplicate', '-z']
  const listed = execFileSync('git', args, { cwd: root, encoding: 'utf8' }).split('\0').filter(Boolean)
  const deleted = execFileSync('git', ['ls-files', '--deleted', '-z'], { cwd: root, encoding: 'utf8' }).split(
    '\0',
  )
  return listed.filter((path) => !deleted.includes(path)).sort()
}
