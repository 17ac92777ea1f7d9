import { type ChildProcess, spawn } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import { undisturbed } from '../base/measured.ts'
import { bundled } from '../servers/bundled.ts'
import { startEtcd } from '../servers/etcd-server.ts'
import { type Namespace, namespacesMissing, startNamespace } from '../servers/namespaces.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'

const PROGRAM = await bundled(new URL('cut-off-process.ts', import.meta.url))
const TTL_MS = 2000

const missing = namespacesMissing()

class Client {
  readonly told: { readonly what: string; readonly at: number }[] = []
  readonly namespace: Namespace
  readonly process: ChildProcess

  constructor(namespace: Namespace, url: string) {
    this.namespace = namespace
    const [command = '', ...args] = [...namespace.exec, process.execPath, PROGRAM, url]
    this.process = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    this.process.on('message', (message) => this.told.push(message as { what: string; at: number }))
    onTestFinished(() => {
      this.process.kill('SIGKILL')
    })
  }

  get last(): string | undefined {
    return this.told.at(-1)?.what
  }

  at(what: string): number {
    return this.told.findLast((one) => one.what === what)?.at ?? Number.NaN
  }
}

// Each client reaches the server over a cable of its own.
test.each([
  ['redis', startRedis, (host: string, port: number) => `redis://${host}:${port}`],
  ['postgres', startPostgres, (host: string, port: number) => `postgres://holdfast@${host}:${port}/holdfast`],
  ['etcd', startEtcd, (host: string, port: number) => `etcd://${host}:${port}`],
] as const)(
  'of five clients of %s the one that is cut off loses in time, before another one holds, and comes back when its cable is mended',
  async (_, start, urlOf) => {
    if (missing !== undefined) return console.log(`Not cutting any real network: ${missing}.`)
    await using server = await start()
    const clients: Client[] = []
    for (let index = 0; index < 5; index += 1) {
      const namespace = await startNamespace()
      onTestFinished(() => namespace[Symbol.asyncDispose]())
      await namespace.expose([server.port])
      clients.push(new Client(namespace, urlOf(namespace.host, server.port)))
    }
    const holder = () => clients.find(({ last }) => last === 'held')
    // A client that stands still notices its loss when it goes on.
    const isInTime = ({ cut, next, cutAt }: { cut: Client; next: Client; cutAt: number }) =>
      cut.at('lost') - cutAt < TTL_MS + 100 && next.at('held') > cut.at('lost')
    const { cut, next, cutAt } = await undisturbed(isInTime, async () => {
      await until('somebody holds', () => holder() !== undefined)
      // Gives the other clients time to queue.
      await new Promise((resolve) => setTimeout(resolve, 1000))
      const cut = await until('somebody holds still', holder)
      cut.namespace.cut()
      const cutAt = Number(process.hrtime.bigint()) / 1e6
      await until('it has lost', () => cut.last === 'lost')
      const next = await until('another one holds', holder)
      cut.namespace.mend()
      return { cut, next, cutAt }
    })
    expect(cut.at('lost') - cutAt).toBeLessThan(TTL_MS + 100)
    expect(next).not.toBe(cut)
    expect(next.at('held')).toBeGreaterThan(cut.at('lost'))

    for (const client of clients) if (client !== cut) client.process.send('end')
    await until('it holds again', () => cut.last === 'held')
    cut.process.send('end')
    await until('all have ended', () => clients.every(({ last }) => last === 'ended'))
  },
)
