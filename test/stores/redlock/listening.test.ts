import { expect, test } from 'vitest'
import type { CombinedWakes } from '../../../src/stores/redlock/combined-wakes.ts'
import { Listening } from '../../../src/stores/redlock/listening.ts'
import type { RedlockServer } from '../../../src/stores/redlock/redlock-server.ts'

test('whoever ends an attempt to hear messages listens to no server any more', async () => {
  const listeners = new Set<unknown>()
  let answer = (): void => {}
  const listen = async (listener: unknown) => {
    listeners.add(listener)
    return () => void listeners.delete(listener)
  }
  const sound = { rooms: { listen } }
  const slow = {
    rooms: {
      listen: async (listener: unknown) => {
        await new Promise<void>((resolve) => {
          answer = resolve
        })
        return listen(listener)
      },
    },
  }
  const down = { rooms: { listen: () => Promise.reject(new Error('down')) } }
  const servers = [sound, slow, down, down, down] as unknown as readonly RedlockServer[]
  const wakes = { heard() {} } as unknown as CombinedWakes
  const listening = new Listening(servers, { majority: 3, wakes, onWake: () => {} })
  await expect(listening.flowing).rejects.toThrow('down')
  expect(listeners.size).toBe(1)
  listening.close()
  answer()
  await new Promise((resolve) => setImmediate(resolve))
  expect(listeners.size).toBe(0)
})
