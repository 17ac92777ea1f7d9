import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import type { ProxiedServer } from './proxied-url.ts'

/** What happens to the connections of a process. */
export type Cut =
  /** Open connections are destroyed. New connections are reset. */
  | 'reset'
  /** Every byte is swallowed, in both directions, and nobody is told. */
  | 'silent'
  /** The present connections never pass a byte again. New ones work: a firewall has forgotten them. */
  | 'stranded'

/** The connections of one process to one server. A TCP proxy in the process of the nemesis. */
export class CuttableProxy {
  readonly #server: Server
  readonly #links = new Set<ProxiedLink>()
  #cut: Cut | undefined

  private constructor(target: ProxiedServer) {
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
      // An error is always followed by a close, which is passed on.
      client.on('error', () => {})
      if (this.#cut === 'reset') return void client.resetAndDestroy()
      const link = join(client, target)
      link.isSilent = this.#cut === 'silent'
      this.#links.add(link)
      link.whenClosed(() => this.#links.delete(link))
    })
  }

  static async start(target: ProxiedServer): Promise<CuttableProxy> {
    const proxy = new CuttableProxy(target)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port
  }

  cut(how: Cut): void {
    this.#cut = how
    for (const link of this.#links) {
      if (how === 'reset') link.destroy()
      else link.isSilent = true
    }
  }

  /**
   * After `stranded`, a connection that lost bytes stays silent. After any other cut it is closed, because TCP cannot lose
   * bytes and go on.
   */
  mend(): void {
    const wasStranded = this.#cut === 'stranded'
    this.#cut = undefined
    if (wasStranded) return
    for (const link of this.#links) if (link.isSilent) link.destroy()
  }

  close(): void {
    this.#server.close()
    for (const link of this.#links) link.destroy()
  }
}

interface ProxiedLink {
  isSilent: boolean
  destroy(): void
  whenClosed(tell: () => void): void
}

function join(client: Socket, { host, port }: ProxiedServer): ProxiedLink {
  const server = connect({ host, port, allowHalfOpen: true, noDelay: true })
  server.on('error', () => {})
  const link: ProxiedLink = {
    isSilent: false,
    destroy() {
      client.destroy()
      server.destroy()
    },
    whenClosed(tell) {
      for (const socket of [client, server]) {
        socket.on('close', () => {
          if (client.destroyed && server.destroyed) tell()
        })
      }
    },
  }
  pass(client, server, link)
  pass(server, client, link)
  return link
}

function pass(from: Socket, to: Socket, link: ProxiedLink): void {
  from.on('data', (bytes) => {
    if (link.isSilent || to.destroyed) return
    if (to.write(bytes)) return
    from.pause()
    to.once('drain', () => from.resume())
  })
  const end = () => {
    if (!link.isSilent) to.end()
  }
  from.on('end', end)
  from.on('close', end)
}
