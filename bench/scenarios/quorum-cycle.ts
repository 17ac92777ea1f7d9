import { spawnSync } from 'node:child_process'
import { startRedis } from '../../test/servers/redis-server.ts'
import type { Adapter } from '../adapter.ts'
import { type Candidate, percentile } from '../scenario.ts'

export type QuorumFault = 'none' | 'one hung' | 'two killed'

/** Takes and releases one free key on five servers, one after the other: p50 in µs. */
export function quorumCycle(
  name: string,
  open: (ports: readonly number[]) => Promise<Adapter>,
  { fault, cycles }: { readonly fault: QuorumFault; readonly cycles: number },
): Candidate {
  return {
    name,
    async measure(_, { quick }) {
      const servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()))
      // This process is pinned to a processor of its own. Servers that it starts would share that processor.
      for (const { pid } of servers) spawnSync('taskset', ['-a', '-c', '-p', '0', String(pid)])
      // The servers count as old: the votes of a new server do not count yet.
      for (const { command } of servers)
        await command('SET', 'holdfast:since', `${Math.random()} - 0000000000001`)
      const adapter = await open(servers.map(({ port }) => port))
      const count = quick ? Math.ceil(cycles / 10) : cycles
      const cycle = async (): Promise<void> => (await adapter.acquire('cycle'))()
      for (let turn = 0; turn < count / 5; turn += 1) await cycle()
      if (fault === 'one hung') await servers[1]?.pause()
      if (fault === 'two killed') for (const server of servers.slice(1, 3)) await server.kill()
      for (let turn = 0; turn < count / 10; turn += 1) await cycle()
      const times: number[] = []
      for (let turn = 0; turn < count; turn += 1) {
        const from = performance.now()
        await cycle()
        times.push(performance.now() - from)
      }
      await adapter.close()
      await Promise.all(servers.map((server) => server.close()))
      return [percentile(times, 0.5) * 1000, percentile(times, 0.99) * 1000]
    },
  }
}
