import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { OpenAdapter } from '../adapter.ts'
import type { Candidate } from '../scenario.ts'

const WAITERS = 100

/** 100 waiters of one process on a key that stays held: commands per second that the server sees. */
export function idle(name: string, open: OpenAdapter): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const probe = new Redis({ port: surroundings.redisPort, host: '127.0.0.1' })
      const release = await adapter.acquire('idle')
      const waiting = Array.from({ length: WAITERS }, async () => (await adapter.acquire('idle'))())
      await sleep(1500)
      const before = await commandsOf(probe)
      const durationMs = quick ? 3000 : 10_000
      await sleep(durationMs)
      // The first look counts itself, and so it is taken off.
      const commands = (await commandsOf(probe)) - before - 1
      await release()
      await Promise.all(waiting)
      await adapter.close()
      probe.disconnect()
      return [(commands / durationMs) * 1000]
    },
  }
}

async function commandsOf(probe: Redis): Promise<number> {
  const stats = await probe.info('stats')
  return Number(/total_commands_processed:(\d+)/.exec(stats)?.[1])
}
