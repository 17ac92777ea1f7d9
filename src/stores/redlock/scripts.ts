import { type Script, type Scripts, scriptOf, scriptsOf } from '../redis/server/scripts.ts'
import { scripts } from './lua/scripts.generated.ts'

/** For one of several independent servers, of which most have to agree. */
export const votingScripts: Scripts = scriptsOf(scripts)

export const claimScript: Script = scriptOf(scripts.claim)
export const votesScript: Script = scriptOf(scripts.votes)
export const withdrawScript: Script = scriptOf(scripts.withdraw)
/** Who the server is, and since when it remembers everything. */
export const identityScript: Script = scriptOf(scripts.identity)
