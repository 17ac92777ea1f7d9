import { scripts } from './lua/scripts.generated.ts'
import { type Scripts, scriptsOf } from './server/scripts.ts'

/** For a server that decides alone. */
export const serverScripts: Scripts = scriptsOf(scripts)
