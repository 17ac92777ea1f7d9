import { createHash } from 'node:crypto'

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

/** From the generated texts of one variant: for a server that decides alone, for a cluster, or for redlock. */
export function scriptsOf(texts: Readonly<Record<keyof Scripts, string>>): Scripts {
  return {
    probe: scriptOf(texts.probe),
    acquire: { ...scriptOf(texts.acquire), grants: true },
    renew: { ...scriptOf(texts.renew), grants: true },
    release: scriptOf(texts.release),
    evict: scriptOf(texts.evict),
    inspect: scriptOf(texts.inspect),
  }
}

export function scriptOf(text: string): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}
