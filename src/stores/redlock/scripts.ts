import { createHash } from 'node:crypto'
import { scripts as roomScripts } from '../redis/lua/scripts.generated.ts'
import type { Script } from '../redis/server/scripts.ts'
import { scripts } from './lua/scripts.generated.ts'

export const claimScript: Script = scriptOf(scripts.claim)
export const lookScript: Script = scriptOf(scripts.look)
export const yieldScript: Script = scriptOf(scripts.yield)
export const standingScript: Script = scriptOf(scripts.standing)

/** The rooms are those of the redis store, and so are the parts that know how a room is kept. */
function scriptOf(source: string): Script {
  const parts: Readonly<Record<string, string>> = roomScripts
  const text = source.replace(/^--@ (\w+)$/gm, (_, name: string) => parts[name] ?? '')
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}
