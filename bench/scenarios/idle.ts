import { connect } from 'node:net'
import { createInterface } from 'node:readline'
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
      probe.disconnect()
      const { requests, commands } = await countsWithin(durationMs, surroundings.redisPort)
      // The waiters are left to the end of the process.
      return [(requests / durationMs) * 1000, (commands / durationMs) * 1000, usedShare]
    },
  }
}

/**
 * Counted with MONITOR, as the server's counters do not tell requests from commands inside scripts. ioredis fails when the first
 * commands arrive together with the answer to its own request, so this reads the lines itself.
 */
async function countsWithin(
  durationMs: number,
  port: number,
): Promise<{ requests: number; commands: number }> {
  const socket = connect({ port, host: '127.0.0.1' })
  let requests = 0
  let commands = 0
  createInterface({ input: socket }).on('line', (line) => {
    if (line === '+OK') return
    commands += 1
    if (!/^\+[\d.]+ \[\d+ lua\]/.test(line)) requests += 1
  })
  socket.write('MONITOR\r\n')
  await sleep(durationMs)
  socket.destroy()
  return { requests, commands }
}
