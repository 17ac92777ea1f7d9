import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { type FaultProxy, startProxy } from '../test/servers/tcp-proxy.ts'
import type { Stage } from './fault.ts'
import type { Client, Library } from './library.ts'

/** The servers on these ports belong to this stage alone. */
export async function stageFor(library: Library, ports: readonly number[]): Promise<Stage> {
  const { kind } = library
  const proxies = await proxiesTo(ports)
  const open = (to: readonly number[], ttlMs: number): Promise<Client> => library.open({ ports: to, ttlMs })
  const portsOf = (ways: readonly FaultProxy[]): readonly number[] => ways.map(({ port }) => port)
  if (kind === 'memory') {
    // Locks in memory are one object, which all callers share.
    let only: Promise<Client> | undefined
    const shared = (ttlMs: number): Promise<Client> => {
      only ??= open([], ttlMs)
      return only
    }
    return {
      kind,
      proxies,
      open: shared,
      openAside: shared,
      openNear: shared,
      countRequests: none,
      revokeLeases: none,
    }
  }
  return {
    kind,
    proxies,
    open: (ttlMs) => open(portsOf(proxies), ttlMs),
    openAside: (ttlMs) => open(ports, ttlMs),
    async openNear(ttlMs, server) {
      const ways = await proxiesTo(ports)
      for (const [index, way] of ways.entries()) if (index !== server) way.delay({ requestMs: 20 })
      return open(portsOf(ways), ttlMs)
    },
    countRequests: (durationMs) => countRequests(ports, durationMs),
    revokeLeases: () => revokeLeases(ports[0] ?? 0),
  }
}

async function none(): Promise<never> {
  throw new Error('Locks in memory have no server.')
}

function proxiesTo(ports: readonly number[]): Promise<readonly FaultProxy[]> {
  return Promise.all(ports.map((targetPort) => startProxy({ targetPort })))
}

/** Counts by MONITOR, which marks the commands that scripts run. They are no requests. */
async function countRequests(ports: readonly number[], durationMs: number): Promise<number> {
  const clients = ports.map((port) => new Redis({ port, host: '127.0.0.1' }))
  const monitors = await Promise.all(clients.map((client) => client.monitor()))
  let requests = 0
  for (const monitor of monitors)
    monitor.on('monitor', (_time: string, _args: string[], source: string) => {
      if (source !== 'lua') requests += 1
    })
  await pause(durationMs)
  for (const client of [...monitors, ...clients]) client.disconnect()
  return requests
}

async function revokeLeases(port: number): Promise<void> {
  const { leases = [] } = (await post(port, '/v3/lease/leases', {})) as { leases?: { ID: string }[] }
  for (const { ID } of leases) await post(port, '/v3/lease/revoke', { ID })
}

async function post(port: number, path: string, body: object): Promise<unknown> {
  const sent = request({ host: '127.0.0.1', port, path, method: 'POST' })
  const answered = new Promise<string>((resolve, reject) => {
    sent.once('response', (response) => resolve(text(response)))
    sent.once('error', reject)
  })
  sent.end(JSON.stringify(body))
  return JSON.parse(await answered)
}
