import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { sentinelLink } from '../../../../src/stores/redis/sentinel/link.ts'
import type {
  ChannelsListener,
  OtherServer,
  RawConnection,
  RedisLink,
} from '../../../../src/stores/redis/server/client-link.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

test('while the master is gone, all connections of a store share one search with pauses', async () => {
  const scene = newScene()
  const { link } = scene
  const connections = Array.from({ length: 20 }, () => link.open(() => {}))
  await vi.advanceTimersByTimeAsync(0)
  const requests = keepSending(connections)
  await vi.advanceTimersByTimeAsync(10_000)
  const inTenSeconds = scene.asked(FIRST)
  await vi.advanceTimersByTimeAsync(50_000)
  // The pauses are 100, 200, 400, 800 and then 1000 ms, less a quarter at most.
  expect(inTenSeconds).toBeGreaterThanOrEqual(10)
  expect(inTenSeconds).toBeLessThan(20)
  expect(scene.asked(FIRST) - inTenSeconds).toBeLessThan(70)
  expect(scene.asked(SECOND)).toBe(scene.asked(FIRST))
  expect(requests.failed).toBeGreaterThan(20)
  await requests.stop()
  link.close?.()
})

test('a Sentinel that announces another master ends the pause', async () => {
  const scene = newScene()
  const connection = scene.link.open(() => {})
  await failsAfterPauses(connection)
  const reply = connection.send('PING', [])
  scene.failOver()
  scene.announce()
  await vi.advanceTimersByTimeAsync(0)
  expect(await reply).toBe('PONG from 2')
  connection.close()
  scene.link.close?.()
})

test('`close` ends the pause, and no Sentinel is asked any more', async () => {
  const scene = newScene()
  const connection = scene.link.open(() => {})
  await failsAfterPauses(connection)
  const asked = scene.asked(FIRST)
  const ended = expect(connection.send('PING', [])).rejects.toThrow('closed')
  connection.close()
  scene.link.close?.()
  await vi.advanceTimersByTimeAsync(0)
  await ended
  expect(scene.asked(FIRST)).toBe(asked)
  expect(vi.getTimerCount()).toBe(0)
})

test('a search for a master that has been lost begins at once, and with the shortest pause', async () => {
  const scene = newScene()
  const connection = scene.link.open(() => {})
  for (let round = 0; round < 3; round += 1) {
    await failsAfterPauses(connection)
    scene.masterAnswers = true
    const found = connection.send('PING', [])
    await vi.advanceTimersByTimeAsync(1000)
    expect(await found).toBe('PONG from 1')
    scene.masterAnswers = false
    scene.loseConnections()
    const failed = expect(connection.send('PING', [])).rejects.toThrow('ECONNREFUSED')
    await vi.advanceTimersByTimeAsync(0)
    await failed
    scene.masterAnswers = true
    const again = connection.send('PING', [])
    await vi.advanceTimersByTimeAsync(100)
    expect(await again).toBe('PONG from 1')
    scene.masterAnswers = false
    scene.loseConnections()
  }
  connection.close()
  scene.link.close?.()
})

test('while no Sentinel answers, the search pauses, too', async () => {
  const scene = newScene()
  scene.sentinelsAnswer = false
  const connection = scene.link.open(() => {})
  const requests = keepSending([connection])
  await vi.advanceTimersByTimeAsync(10_000)
  expect(scene.asked(FIRST)).toBeGreaterThanOrEqual(10)
  expect(scene.asked(FIRST)).toBeLessThan(20)
  await requests.stop()
  connection.close()
  scene.link.close?.()
})

const FIRST = 26_379
const SECOND = 26_380

interface Scene {
  readonly link: RedisLink
  /** Whether the master at port 1 answers. Default: false. */
  masterAnswers: boolean
  /** Default: true. */
  sentinelsAnswer: boolean
  /** From now on the Sentinels name the server at port 2, which answers. */
  failOver(): void
  /** Both Sentinels announce that. */
  announce(): void
  loseConnections(): void
  /** How many times this Sentinel was asked for the master. */
  asked(port: number): number
}

/** Two Sentinels, which name the server at port 1 as the master. */
function newScene(): Scene {
  let masterPort = 1
  const subscribers = new Set<ChannelsListener>()
  const losses = new Set<() => void>()
  const asked = new Map<number, number>()
  const isSentinel = (port: number): boolean => port === FIRST || port === SECOND
  const replyOf = (port: number, command: string, [subcommand]: readonly string[]): unknown => {
    if (isSentinel(port)) {
      if (subcommand === 'MASTER') return ['config-epoch', String(masterPort)]
      asked.set(port, (asked.get(port) ?? 0) + 1)
      if (!scene.sentinelsAnswer) throw new Error('ECONNREFUSED')
      return ['h', String(masterPort)]
    }
    if (port !== masterPort || (port === 1 && !scene.masterAnswers)) throw new Error('ECONNREFUSED')
    return command === 'ROLE' ? ['master'] : `PONG from ${port}`
  }
  const linkTo = ({ port }: Pick<OtherServer, 'port'> = { port: 0 }): RedisLink => ({
    keyPrefix: '',
    open(onLost) {
      if (!isSentinel(port)) losses.add(onLost)
      return {
        send: async (command, args) => replyOf(port, command, args),
        reasonOf: (error) => error,
        close: () => losses.delete(onLost),
      }
    },
    openChannels(listener) {
      subscribers.add(listener)
      return { async add() {}, remove() {}, close: () => subscribers.delete(listener) }
    },
  })
  const nodes = [FIRST, SECOND].map((port) => ({ host: 'h', port }))
  const scene: Scene = {
    link: sentinelLink(linkTo, { name: 'mymaster', nodes, access: {} }),
    masterAnswers: false,
    sentinelsAnswer: true,
    failOver() {
      masterPort = 2
    },
    announce() {
      for (const subscriber of subscribers) subscriber.onMessage('mymaster h 1 h 2')
    },
    loseConnections() {
      for (const lose of losses) lose()
    },
    asked: (port) => asked.get(port) ?? 0,
  }
  return scene
}

/** Sends until the next pause is about a second. The pause begins with the last failure. */
async function failsAfterPauses(connection: RawConnection): Promise<void> {
  for (let failures = 0; failures < 6; failures += 1) {
    const failed = expect(connection.send('PING', [])).rejects.toThrow('ECONNREFUSED')
    await vi.runAllTimersAsync()
    await failed
  }
}

/** Sends on each connection, and again 10 ms after each failure. */
function keepSending(connections: readonly RawConnection[]): { failed: number; stop(): Promise<unknown> } {
  let stopped = false
  const requests = { failed: 0, stop }
  const atWork = connections.map(async (connection) => {
    while (!stopped) {
      await connection.send('PING', []).catch(() => {
        requests.failed += 1
      })
      if (!stopped) await new Promise((resolve) => setTimeout(resolve, 10))
    }
  })
  return requests

  async function stop(): Promise<unknown> {
    stopped = true
    await vi.advanceTimersByTimeAsync(2000)
    return Promise.all(atWork)
  }
}
