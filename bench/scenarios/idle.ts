import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { OpenAdapter } from '../adapter.ts'
import type { Candidate } from '../scenario.ts'

const WAITERS = 100

/** 100 waiters of one process on a key that stays held: requests per second that reach the server. */
export function idle(name: string, open: OpenAdapter): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const probe = new Redis({ port: surroundings.redisPort, host: '127.0.0.1' })
      const release = await adapter.acquire('idle')
      const waiting = Array.from({ length: WAITERS }, async () => (await adapter.acquire('idle'))())
      await sleep(1500)
      const durationMs = quick ? 3000 : 10_000
      // Counted with MONITOR, as the server's counters include commands that scripts run inside the server.
      const monitor = await probe.monitor()
      let commands = 0
      monitor.on('monitor', (_time, _args, source) => {
        if (source !== 'lua') commands += 1
      })
      await sleep(durationMs)
      monitor.disconnect()
      await release()
      await Promise.all(waiting)
      await adapter.close()
      probe.disconnect()
      return [(commands / durationMs) * 1000]
    },
  }
}
