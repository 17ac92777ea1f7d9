import { type Script, type Scripts, scriptOf, scriptsOf } from '../redis/server/scripts.ts'
import { scripts } from './lua/scripts.generated.ts'

/** For one of several independent servers, of which most have to agree. */
export const votingScripts: Scripts = scriptsOf(scripts)

export const claimScript: Script = scriptOf(scripts.claim)
export const lookScript: Script = scriptOf(scripts.look)
export const yieldScript: Script = scriptOf(scripts.yield)
/** Who the server is, and since when it remembers everything. */
export const standingScript: Script = scriptOf(scripts.standing)
