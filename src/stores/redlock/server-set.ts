/** Some of the servers of the list, as one bit for each: the list has 31 servers at most. */
export type ServerSet = number

export const NO_SERVERS: ServerSet = 0
export const ALL_SERVERS: ServerSet = ~0

export function has(servers: ServerSet, { index }: { readonly index: number }): boolean {
  return (servers & (1 << index)) !== 0
}

export function withServer(servers: ServerSet, { index }: { readonly index: number }): ServerSet {
  return servers | (1 << index)
}
