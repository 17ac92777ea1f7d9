import { resolve } from 'node:path'

/**
 * What the file of a history calls its store: the scheme, hosts, database and prefix of the URL, without anything that may be a
 * secret. A URL in which a secret cannot be told from a host is named by its scheme alone.
 */
export function storeIdentity(url: string): string {
  const [, typed = '', rest = ''] = /^([^:]*):(.*)$/s.exec(url) ?? []
  const scheme = typed.toLowerCase().replace(/^postgresql$/, 'postgres')
  if (scheme === 'sqlite') return `sqlite ${resolve(rest.replace(/^\/\/(?=\/)/, ''))}`
  const places = rest.split(/,(?=\s*\w+:\/\/)/).map(placeIn)
  if (places.includes(undefined)) return scheme
  // A + is a plus here, as where the stores read it.
  const query = /\?(.*)$/s.exec(rest)?.[1]?.replaceAll('+', '%2B')
  const prefix = new URLSearchParams(query).get('prefix')
  return `${scheme} ${places.join(',')}${prefix === null ? '' : ` ${prefix}`}`
}

/** An `@` stands once at most, and before the host: anywhere else, a part of a password could be read as a host. */
function placeIn(url: string): string | undefined {
  const match = /^\s*(?:\w+:)?\/\/(?:[^/?#@]*@)?([^/?#@]*)(\/[^?#@]*)?(?:[?#][^@]*)?$/s.exec(url)
  if (match === null) return undefined
  const [, hosts = '', database = ''] = match
  // The first database of Redis is the one of a URL that names none.
  return `${hosts}${database.replace(/^\/0?$/, '')}`
}
