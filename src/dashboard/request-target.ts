import type { IncomingMessage } from 'node:http'

/** What a request asks for, below the mount point of the dashboard. */
export interface RequestTarget {
  /** The path below the mount point, without a slash in front. */
  readonly name: string
  readonly query: URLSearchParams
  readonly search: string
  /** Set where the address lacks the slash at its end: without it the page's relative addresses are wrong. */
  readonly redirect: string | undefined
}

/** `undefined`: the address is not below the mount point. Express removes the mount point from `url` and keeps the whole address in `originalUrl`. */
export function requestTargetOf(
  request: IncomingMessage & { originalUrl?: string },
  mount: string,
): RequestTarget | undefined {
  const [whole, search] = splitAddress(request.originalUrl ?? request.url ?? '')
  const [pathname] = splitAddress(request.url ?? '')
  const isBelow = mount !== '' && `${whole}/`.startsWith(`${mount}/`)
  if (mount !== '' && !isBelow && request.originalUrl === undefined) return undefined
  const name = (isBelow ? whole.slice(mount.length) : pathname).replace(/^\//, '')
  const redirect = name === '' && !whole.endsWith('/') ? `./${whole.split('/').at(-1)}/` : undefined
  return { name, query: new URLSearchParams(search), search, redirect }
}

/** The address is not normalized: an invalid one, or one with `..`, matches no route. */
function splitAddress(address: string): [path: string, search: string] {
  const [path = ''] = address.split('?', 1)
  return [path, address.slice(path.length)]
}
