import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, rmSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { describe, expect, test } from 'vitest'
import { startRedis } from './redis-server.ts'
import { sendCommand } from './resp.ts'
import { until } from './until.ts'

describe('a real Redis server for tests', () => {
  test('answers, counts its commands and keeps nothing over a restart', async () => {
    await using server = await startRedis()
    const { port, pid } = server
    expect(await server.command('SET', 'k', 'ü'.repeat(100_000))).toBe('OK')
    expect(await server.command('GET', 'k')).toBe('ü'.repeat(100_000))
    expect(await server.command('GET', 'absent')).toBeNull()
    expect(await server.command('LRANGE', 'absent', 0, -1)).toEqual([])
    expect(await server.commandStats()).toMatchObject({ set: 1, get: 2, lrange: 1 })
    await server.restart()
    expect(server.port).toBe(port)
    expect(server.pid).not.toBe(pid)
    expect(await server.command('GET', 'k')).toBeNull()
  })

  test('keeps what it answered when it is killed, with an append-only file', async () => {
    await using server = await startRedis({ appendOnly: true })
    await server.command('SET', 'k', 'kept')
    await server.kill()
    await expect(server.command('PING')).rejects.toThrow('ECONNREFUSED')
    await server.restart()
    expect(await server.command('GET', 'k')).toBe('kept')
  })

  test('hangs while it is paused, and goes on afterwards', async () => {
    await using server = await startRedis()
    await server.pause()
    await expect(sendCommand({ port: server.port, timeoutMs: 100 }, ['PING'])).rejects.toThrow('No reply')
    server.resume()
    expect(await server.command('PING')).toBe('PONG')
    await server.pause()
    await server.stop()
    expect(() => server.resume()).toThrow('Expected redis-server to be running')
  })

  test('asks for its password', async () => {
    await using server = await startRedis({ password: 's3cret' })
    expect(server.url).toBe(`redis://:s3cret@127.0.0.1:${server.port}`)
    expect(await server.command('PING')).toBe('PONG')
    await expect(sendCommand({ port: server.port }, ['PING'])).rejects.toThrow('NOAUTH')
    await expect(sendCommand({ port: server.port, password: 'wrong' }, ['PING'])).rejects.toThrow('WRONGPASS')
  })

  test('knows ACL users', async () => {
    await using server = await startRedis({ users: ['app on >app-secret ~lock:* resetchannels -@all +set'] })
    const app = { port: server.port, username: 'app', password: 'app-secret' }
    expect(await sendCommand(app, ['SET', 'lock:1', 'x'])).toBe('OK')
    await expect(sendCommand(app, ['SET', 'other', 'x'])).rejects.toThrow('NOPERM')
    await expect(sendCommand(app, ['GET', 'lock:1'])).rejects.toThrow('NOPERM')
  })

  test('replicates, read-only', async () => {
    await using primary = await startRedis({ password: 'p' })
    await using replica = await startRedis({ replicaOf: { port: primary.port, password: 'p' } })
    await primary.command('SET', 'k', 'v')
    await until('the replica has it', async () => (await replica.command('GET', 'k')) === 'v')
    await expect(replica.command('SET', 'k', 'w')).rejects.toThrow('READONLY')
  })

  test('says what the server said when it does not start', async () => {
    await expect(startRedis({ args: ['--no-such-option', '1'] })).rejects.toThrow('no-such-option')
  })

  test('leaves no process and no folder behind, also when closed while paused, twice', async () => {
    const server = await startRedis()
    const folder = String(((await server.command('CONFIG', 'GET', 'dir')) as string[])[1])
    const { pid } = server
    await server.pause()
    await server.close()
    await server.close()
    expect(isAlive(pid)).toBe(false)
    expect(existsSync(folder)).toBe(false)
  })

  test('leaves neither process nor folder when the test process exits without closing it', async () => {
    const { pid, folder } = await startInChild('process.exit(1)')
    await until('the server is gone', () => !isAlive(pid))
    expect(existsSync(folder)).toBe(false)
  })

  // Only Linux can end a process with its parent; elsewhere there is nothing to test.
  if (process.platform === 'linux') {
    test('leaves no process when the test process is killed', async () => {
      const { pid, folder } = await startInChild('process.kill(process.pid, "SIGKILL")')
      await until('the server is gone', () => !isAlive(pid))
      rmSync(folder, { recursive: true, force: true })
    })
  }
})

/** Starts a server in a process of its own. `ending` is how that process ends. */
async function startInChild(ending: string): Promise<{ pid: number; folder: string }> {
  const program = `
    const { startRedis } = await import(${JSON.stringify(import.meta.resolve('./redis-server.ts'))})
    const server = await startRedis()
    const [, folder] = await server.command('CONFIG', 'GET', 'dir')
    process.stdout.write(JSON.stringify({ pid: server.pid, folder }), () => ${ending})
  `
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')])
  return JSON.parse(output)
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
