import { expect, test } from 'vitest'
import { ClusterMap } from '../../../../src/stores/redis/cluster/map.ts'
import type { ClusterLink } from '../../../../src/stores/redis/server/client-link.ts'

/** Servers by their ports. Each answers CLUSTER SLOTS with this after so many milliseconds. */
function linkTo(
  servers: Readonly<Record<number, { readonly afterMs: number; readonly slots: unknown }>>,
): ClusterLink {
  return {
    keyPrefix: '',
    seeds: Object.keys(servers).map((port) => ({ host: 'h', port: Number(port) })),
    linkTo: ({ port }) => ({
      keyPrefix: '',
      open: () => ({
        async send() {
          await new Promise((resolve) => setTimeout(resolve, servers[port]?.afterMs))
          return servers[port]?.slots
        },
        reasonOf: (error) => error,
        close() {},
      }),
      openChannels: () => expect.unreachable(),
    }),
  }
}

const ALL = [[0, 16_383, ['h', 2]]]

test('a server that has left the cluster does not empty the map, though it answers first', async () => {
  const map = new ClusterMap({
    link: linkTo({ 1: { afterMs: 0, slots: [] }, 2: { afterMs: 50, slots: ALL } }),
    suspects: () => [],
  })
  expect(await map.refresh()).toEqual(new Set(['h:1', 'h:2']))
  expect(map.masters).toEqual(['h:2'])
})

test('if only such a server answers, the last map stays', async () => {
  const servers = { 1: { afterMs: 0, slots: ALL as unknown } }
  const map = new ClusterMap({ link: linkTo(servers), suspects: () => [] })
  await map.refresh()
  servers[1] = { afterMs: 0, slots: [] }
  await map.refresh()
  expect(map.masterOf(7)).toBe('h:2')
})
