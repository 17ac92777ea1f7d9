import { expect, test } from 'vitest'
import { ClusterMap } from '../../../../src/stores/redis/cluster/map.ts'
import type { ClusterLink } from '../../../../src/stores/redis/server/client-link.ts'

interface Server {
  readonly afterMs: number
  readonly slots: unknown
  /** Default: `ok`. */
  readonly state?: string | Error
}

/** Servers by their ports. Each answers CLUSTER SLOTS and CLUSTER INFO with this after so many milliseconds. */
function linkTo(servers: Readonly<Record<number, Server>>): ClusterLink {
  return {
    keyPrefix: '',
    seeds: Object.keys(servers).map((port) => ({ host: 'h', port: Number(port) })),
    linkTo: ({ port }) => ({
      keyPrefix: '',
      open: () => ({
        async send(_, [subcommand]) {
          const { afterMs, slots, state = 'ok' } = servers[port] as Server
          await new Promise((resolve) => setTimeout(resolve, afterMs))
          if (subcommand === 'SLOTS') return slots
          if (state instanceof Error) throw state
          return `cluster_enabled:1\r\ncluster_state:${state}\r\n`
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

test('the map of a server that says that the cluster is down does not win, though it answers first', async () => {
  const map = new ClusterMap({
    link: linkTo({
      1: { afterMs: 0, slots: [[0, 16_383, ['h', 1]]], state: 'fail' },
      // Longer than a server in a fail-over waits for the others.
      2: { afterMs: 200, slots: ALL, state: 'ok' },
    }),
    suspects: () => [],
  })
  await map.refresh()
  expect(map.masters).toEqual(['h:2'])
})

test('if all servers say so, the first map is one of theirs, and does not change after that', async () => {
  const servers = { 1: { afterMs: 0, slots: ALL as unknown, state: 'fail' } }
  const map = new ClusterMap({ link: linkTo(servers), suspects: () => [] })
  await map.refresh()
  expect(map.masters).toEqual(['h:2'])
  servers[1] = { afterMs: 0, slots: [[0, 16_383, ['h', 3]]], state: 'fail' }
  expect(await map.refresh()).toEqual(new Set(['h:1']))
  expect(map.masters).toEqual(['h:2'])
  servers[1] = { afterMs: 0, slots: [[0, 16_383, ['h', 3]]], state: 'ok' }
  await map.refresh()
  expect(map.masters).toEqual(['h:3'])
})

test('a server that names a suspect as a master is believed before one that says that the cluster is down', async () => {
  const map = new ClusterMap({
    link: linkTo({
      1: { afterMs: 0, slots: [[0, 16_383, ['h', 1]]], state: 'fail' },
      2: { afterMs: 50, slots: ALL, state: 'ok' },
      3: { afterMs: 1000, slots: ALL },
    }),
    suspects: () => ['h:2'],
  })
  await map.refresh()
  expect(map.masters).toEqual(['h:2'])
})

test('a user who may not ask for the state gets the map all the same', async () => {
  const map = new ClusterMap({
    link: linkTo({ 2: { afterMs: 0, slots: ALL, state: new Error('NOPERM') } }),
    suspects: () => [],
  })
  await map.refresh()
  expect(map.masters).toEqual(['h:2'])
})
