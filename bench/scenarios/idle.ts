import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { OpenAdapter } from '../adapter.ts'
import { redisProcessorMs } from '../redis-processor.ts'
import type { Candidate } from '../scenario.ts'

/**
 * So many waiters of one process on a key that stays held. Per second: requests that reach the server, commands that it carries out
 * (those inside scripts, too), and the share of its processor in per cent.
 */
export function idle(name: string, open: OpenAdapter, waiters: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const adapter = await open(surroundings)
      const probe = new Redis({ port: surroundings.redisPort, host: '127.0.0.1' })
      await adapter.acquire('idle')
      for (let count = 0; count < waiters; count += 1) void adapter.acquire('idle')
      // By then all waiters are remembered as groups.
      await sleep(6000)
      const durationMs = quick ? 4000 : 10_000
      const before = await redisProcessorMs(probe)
      await sleep(durationMs)
      const usedShare = (((await redisProcessorMs(probe)) - before) / durationMs) * 100
      // Counted with MONITOR, as the server's counters do not tell requests from commands inside scripts.
      const monitor = await probe.monitor()
      let requests = 0
      let commands = 0
      monitor.on('monitor', (_time, _args, source) => {
        commands += 1
        if (source !== 'lua') requests += 1
      })
      await sleep(durationMs)
      monitor.disconnect()
      probe.disconnect()
      // The waiters are left to the end of the process.
      return [(requests / durationMs) * 1000, (commands / durationMs) * 1000, usedShare]
    },
  }
}
