import { createHash } from 'node:crypto'
import { scripts } from './lua/scripts.generated.ts'

/** A Lua script and the name under which a server that has seen it runs it again. */
export interface Script {
  readonly text: string
  readonly sha: string
}

export const probeScript: Script = scriptOf(scripts.probe)
export const acquireScript: Script = scriptOf(scripts.acquire)
export const renewScript: Script = scriptOf(scripts.renew)
export const releaseScript: Script = scriptOf(scripts.release)
export const evictScript: Script = scriptOf(scripts.evict)
export const inspectScript: Script = scriptOf(scripts.inspect)

/** Puts the shared parts in their places: a line `--@ name` stands for the file of that name. */
function scriptOf(source: string): Script {
  const parts: Readonly<Record<string, string>> = scripts
  const text = source.replace(/^--@ (\w+)$/gm, (_, name: string) => parts[name] ?? '')
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}
