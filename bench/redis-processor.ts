import type { Redis } from 'ioredis'

/** The processor time in ms that the Redis server has used so far. */
export async function redisProcessorMs(probe: Redis): Promise<number> {
  const facts = await probe.info('cpu')
  const secondsOf = (name: string): number => Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(facts)?.[1])
  return (secondsOf('used_cpu_user') + secondsOf('used_cpu_sys')) * 1000
}
