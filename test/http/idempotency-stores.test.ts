import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { bundled } from '../servers/bundled.ts'
import { places } from '../servers/places.ts'

interface ServerProcess {
  readonly child: ChildProcess
  readonly url: string
}

test.concurrent.each(['sqlite', 'redis', 'postgres'])(
  'on %s a request whose process is killed half-way is refused until its lease is over, and then answered by another process',
  async (name) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-idempotency-'))
    const place = await (places[name] as (typeof places)[string])(folder)
    const servers: ServerProcess[] = []
    try {
      const [first, second] = await Promise.all([start(place.url, servers), start(place.url, servers)])
      const hangs = once(first.child, 'message')
      const killed = post(first.url, { hang: 'yes' })
      killed.catch(() => {})
      await hangs
      // Any process refuses it, as nobody knows yet how far the first one came.
      expect((await post(second.url)).status).toBe(409)
      first.child.kill('SIGKILL')
      await expect(killed).rejects.toThrow()
      let answer = await post(second.url)
      while (answer.status === 409) {
        await sleep(100)
        answer = await post(second.url)
      }
      expect([answer.status, await answer.text()]).toEqual([200, `answered by ${second.child.pid}`])
      // A process that starts later has the answer, too.
      const third = await start(place.url, servers)
      expect(await (await post(third.url)).text()).toBe(`answered by ${second.child.pid}`)
    } finally {
      for (const { child } of servers) child.kill('SIGKILL')
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

async function start(store: string, servers: ServerProcess[]): Promise<ServerProcess> {
  const child = fork(PROGRAM, [store], { execArgv: [] })
  const [message] = (await once(child, 'message')) as [{ readonly url: string }]
  const server = { child, url: message.url }
  servers.push(server)
  return server
}

function post(url: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url, { method: 'POST', headers: { 'idempotency-key': 'k', connection: 'close', ...headers } })
}

const PROGRAM = await bundled(new URL('idempotency-process.ts', import.meta.url))
