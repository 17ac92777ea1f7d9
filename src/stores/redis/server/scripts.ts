import { createHash } from 'node:crypto'
import { scripts } from '../lua/scripts.generated.ts'

/** A Lua script and the name under which a server that has seen it runs it again. */
export interface Script {
  readonly text: string
  readonly sha: string
  /** Its answers may be grants, which replicas may have to have before they count. */
  readonly grants?: boolean
}

export interface Scripts {
  readonly probe: Script
  readonly acquire: Script
  readonly renew: Script
  readonly release: Script
  readonly evict: Script
  readonly inspect: Script
}

export const serverScripts: Scripts = scriptsOf((source) => source)

/** On a server of a cluster. */
export const clusterScripts: Scripts = scriptsOf((source) =>
  source.replace(/^--@ wake$/gm, '--@ clusterWake').replace(/^--@@ (cluster\w+)$/gm, '--@ $1'),
)

/** On one of several independent servers, of which most have to agree. */
export const votingScripts: Scripts = scriptsOf((source) => source.replace(/^--@@ (proposal)$/gm, '--@ $1'))

function scriptsOf(adapted: (source: string) => string): Scripts {
  const scriptOf = (source: string): Script => {
    // The parts have lines of that kind, too.
    const text = adapted(included(adapted(source)))
    const whole = included(text)
    return { text: whole, sha: createHash('sha1').update(whole).digest('hex') }
  }
  return {
    probe: scriptOf(scripts.probe),
    acquire: { ...scriptOf(scripts.acquire), grants: true },
    renew: { ...scriptOf(scripts.renew), grants: true },
    release: scriptOf(scripts.release),
    evict: scriptOf(scripts.evict),
    inspect: scriptOf(scripts.inspect),
  }
}

/** Puts the shared parts in their places: a line `--@ name` stands for the file of that name. */
function included(source: string): string {
  const parts: Readonly<Record<string, string>> = scripts
  return source.replace(/^--@ (\w+)$/gm, (_, name: string) => parts[name] ?? '')
}
