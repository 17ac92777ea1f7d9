import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test } from 'vitest'
import { createLocks, type Locks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { startEtcd, startEtcdCluster } from '../../servers/etcd-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { passed } from './passed.ts'

const closings: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close()
})

function locksOf(endpoints: readonly string[]): Locks {
  const locks = createLocks(etcdStore({ endpoints }))
  closings.push(() => locks.close())
  return locks
}

describe('an etcd that takes connections, says nothing for 15 s, and then lives', () => {
  test('gives the key to whoever came meanwhile, for whom it was the first connection', async () => {
    await using server = await startEtcd()
    await server.pause()
    const locks = locksOf([server.url])
    const waiting = locks.acquire('k', { wait: '60s' })
    await passed(15_000)
    server.resume()
    await (await waiting).release()
  })

  test('wakes a waiter whose watch was there before', async () => {
    await using server = await startEtcd()
    await using proxy = await startProxy({ targetPort: server.port })
    const [locks, other] = [locksOf([`http://127.0.0.1:${proxy.port}`]), locksOf([server.url])]
    const lease = await other.acquire('k', { ttl: '60s' })
    const waiting = locks.acquire('k', { ttl: '60s', wait: '90s' })
    await until('it waits', async () => {
      for await (const { queue } of other.inspect({ prefix: 'k' })) if (queue.length === 1) return true
      return false
    })
    proxy.halfOpen()
    await passed(15_000)
    // Nothing comes through before, so each request for a watch that etcd gets from now on counts.
    const before = (await server.requests())['Watch'] ?? 0
    proxy.normal()
    await until('it watches again', async () => ((await server.requests())['Watch'] ?? 0) > before)
    await lease.release()
    await (await waiting).release()
  })

  test('is one of three, and nobody notices: requests go to the others, and so does the watch', async () => {
    await using cluster = await startEtcdCluster()
    const silent = await cluster.follower()
    const others = cluster.urls.filter((url) => url !== silent.url)
    await silent.pause()
    const [locks, other] = [locksOf([silent.url, ...others]), locksOf(others)]
    const lease = await other.acquire('k', { ttl: '30s' })
    const waiting = locks.acquire('k', { ttl: '30s', wait: '60s' })
    await until('it waits', async () => {
      for await (const { queue } of other.inspect({ prefix: 'k' })) if (queue.length === 1) return true
      return false
    })
    await lease.release()
    await (await waiting).release()
    silent.resume()
  })
})

test('a machine that does not even refuse a connection keeps no process that wants to end', async () => {
  const listener = spawn(process.execPath, ['--eval', LISTENER], { stdio: ['ignore', 'pipe', 'inherit'] })
  closings.push(() => listener.kill('SIGKILL'))
  const [printed] = await once(listener.stdout, 'data')
  const port = Number(printed)
  listener.kill('SIGSTOP')
  // The listener's queue takes two or three connections. After that the kernel drops what comes.
  await until('a connection hangs', async () => {
    const socket = connect(port, '127.0.0.1')
    closings.push(() => socket.destroy())
    return Promise.race([once(socket, 'connect').then(() => false), passed(1000).then(() => true)])
  })
  const program = fileURLToPath(new URL('unreachable.ts', import.meta.url))
  const tsx = ['--import', import.meta.resolve('tsx')]
  const child = spawn(process.execPath, [...tsx, program, `http://127.0.0.1:${port}`])
  closings.push(() => child.kill('SIGKILL'))
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk
  })
  // The kernel goes on trying for two minutes.
  const [code] = await once(child, 'exit', { signal: AbortSignal.timeout(100_000) })
  expect([code, output]).toEqual([0, 'store-unavailable'])
})

const LISTENER = `
  const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    console.log(server.address().port)
  })
`
