import { connect } from 'node:net'

/**
 * What is wrong where a server says nothing to a client that speaks TLS, if it is a Redis server that does not. Such a server takes
 * the first bytes of TLS for the beginning of a line, and waits for the rest of it. So it is asked something without TLS, which
 * contains no secret.
 */
export async function plainServerAt(url: string): Promise<string | undefined> {
  const { protocol, hostname, port } = new URL(url)
  if (protocol !== 'rediss:') return undefined
  const host = hostname.replace(/^\[|\]$/g, '')
  return (await answersPlainly(host, Number(port || 6379))) ? PLAIN : undefined
}

function answersPlainly(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: LIMIT_MS }, () => socket.write('PING\r\n')).unref()
    socket.on('data', ([first]) => {
      // +PONG, or -NOAUTH, or -DENIED. A server of TLS sends an alert.
      resolve(first === PLUS || first === MINUS)
      socket.destroy()
    })
    socket.on('timeout', () => socket.destroy())
    socket.on('error', () => {})
    socket.on('close', () => resolve(false))
  })
}

const PLUS = '+'.charCodeAt(0)
const MINUS = '-'.charCodeAt(0)

const LIMIT_MS = 2000

const PLAIN =
  'The Redis server does not speak TLS at that port. Connect to the port at which it does, or use redis: instead of rediss:.'
