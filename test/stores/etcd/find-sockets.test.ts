import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findSockets } from '../../../src/stores/etcd/grpc/find-sockets.ts'

let server: Server
let port: number
beforeAll(async () => {
  server = createServer((socket) => socket.end())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
})
afterAll(() => server.close())

test('a socket is found that comes of the work, also later, and no other', async () => {
  const found: Socket[] = []
  let later: Socket | undefined
  const working = new Promise<Socket>((done) => {
    const stop = findSockets(
      () => {
        setImmediate(async () => {
          await undefined
          const mine = connect(port)
          expect(found).toEqual([mine])
          stop()
          // A socket that follows after the stop belongs to somebody else.
          later = connect(port)
          done(mine)
        })
      },
      (socket) => found.push(socket),
    )
  })
  const others = connect(port)
  const mine = await working
  expect(found).toEqual([mine])
  for (const socket of [mine, others, later as Socket]) socket.destroy()
})

test('two who look at once find their own, and one who has stopped finds nothing when the other looks on', async () => {
  const found: Record<string, Socket[]> = { one: [], other: [] }
  let again: () => void = () => {}
  const stop = findSockets(
    () => {
      connect(port).destroy()
      setImmediate(() => again())
    },
    (socket) => found['one']?.push(socket),
  )
  const stopOther = findSockets(
    () => connect(port).destroy(),
    (socket) => found['other']?.push(socket),
  )
  stop()
  await new Promise<void>((done) => {
    again = () => {
      connect(port).destroy()
      done()
    }
  })
  stopOther()
  stopOther()
  expect([found['one']?.length, found['other']?.length]).toEqual([1, 1])
})
