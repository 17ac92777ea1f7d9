import { type Scripts, scriptsOf } from '../server/scripts.ts'
import { scripts } from './lua/scripts.generated.ts'

/** For a server of a cluster. */
export const clusterScripts: Scripts = scriptsOf(scripts)
