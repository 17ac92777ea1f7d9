import type { StorePlace } from './store-option.ts'
import { plain } from './text.ts'

/** The scheme and hosts of a store's URL, without anything that may be a password. */
export function storeName(url: string): string {
  const [, scheme = '', rest = ''] = /^([^:]*):(.*)$/s.exec(url) ?? []
  if (scheme.toLowerCase() === 'sqlite') return plain(`sqlite ${rest}`)
  const hosts = rest
    .split(/,(?=\s*\w+:\/\/)/)
    .map((one) => /\/\/(?:[^/?#]*@)?([^/?#@]*)/.exec(one)?.[1] ?? '')
  return plain(`${scheme} ${hosts.join(',')}`)
}

/** In which store a command looked, for messages. The default store of another user is another one. */
export function whereOf({ url, isDefault }: StorePlace): string {
  return isDefault ? `in the default store of this user (${storeName(url)})` : `in ${storeName(url)}`
}
