import { type Script, type Scripts, scriptOf, scriptsOf } from '../redis/server/scripts.ts'
import { scripts } from './lua/scripts.generated.ts'

/** The scripts of a single server, with proposed fences: for one of several servers that vote. */
export const votingScripts: Scripts = scriptsOf(scripts)

export const claimScript: Script = scriptOf(scripts.claim)
export const votesScript: Script = scriptOf(scripts.votes)
export const withdrawScript: Script = scriptOf(scripts.withdraw)
/** Which server it is, and since when it remembers everything. */
export const identityScript: Script = scriptOf(scripts.identity)
/** Whether it was used before. */
export const initScript: Script = scriptOf(scripts.init)
