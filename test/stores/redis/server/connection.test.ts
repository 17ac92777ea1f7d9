import { describe, expect, test, vi } from 'vitest'
import { serverScripts } from '../../../../src/stores/redis/scripts.ts'
import type { RawConnection } from '../../../../src/stores/redis/server/client-link.ts'
import { ServerConnection } from '../../../../src/stores/redis/server/connection.ts'

const REFUSED = new Error('WRONGPASS invalid username-password pair or user is disabled.')

describe('a late reply on a connection that was replaced', () => {
  test('does not close the next connection, although it is a refusal', async () => {
    const { connection, opened } = connected()
    const refused = [connection.send('GET', ['one']), connection.send('GET', ['two'])].map(rejected)
    opened[0]?.replies[0]?.reject(REFUSED)
    await refused[0]
    const next = connection.send('GET', ['three'])
    opened[0]?.replies[1]?.reject(REFUSED)
    await refused[1]
    expect(opened.map(({ raw }) => vi.mocked(raw.close).mock.calls.length)).toEqual([1, 0])
    opened[1]?.replies[0]?.resolve('3')
    expect(await next).toBe('3')
    expect(connection.silentMs).toBe(0)
    connection.close()
  })

  test('is no sign of life of the next connection', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    try {
      const { connection, opened } = connected()
      const [first, second] = [connection.send('GET', ['one']), connection.send('GET', ['two'])]
      opened[0]?.replies[0]?.reject(REFUSED)
      await rejected(first)
      const third = connection.send('GET', ['three'])
      vi.advanceTimersByTime(400)
      opened[0]?.replies[1]?.resolve('2')
      expect(await second).toBe('2')
      expect(connection.silentMs).toBe(400)
      opened[1]?.replies[0]?.resolve('3')
      expect(await third).toBe('3')
      connection.close()
    } finally {
      vi.useRealTimers()
    }
  })
})

/** A connection to a server whose replies the test gives, on each of the connections that were opened one after the other. */
function connected() {
  const opened: {
    readonly raw: RawConnection
    readonly replies: { resolve(reply: string): void; reject(error: Error): void }[]
  }[] = []
  const connection = new ServerConnection(
    {
      keyPrefix: '',
      open() {
        const replies: (typeof opened)[number]['replies'] = []
        const raw: RawConnection = {
          send: () => new Promise((resolve, reject) => replies.push({ resolve, reject })),
          reasonOf: (error) => error,
          close: vi.fn(),
        }
        opened.push({ raw, replies })
        return raw
      },
      openChannels: () => expect.unreachable(),
    },
    { replicas: 0, scripts: serverScripts },
  )
  return { connection, opened }
}

async function rejected(reply: Promise<unknown>): Promise<void> {
  await expect(reply).rejects.toThrow('WRONGPASS')
}
