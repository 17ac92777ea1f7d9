import { expect, test } from 'vitest'
import { inScene } from '../faults/scene.ts'
import { until } from '../servers/until.ts'
import { startMember } from './member.ts'

/** Longer than a busy machine keeps a process from its renewal. */
const TTL = 4000

test(
  'a process that was stopped past its ttl notices its loss, and the resource refuses its write',
  inScene(async (scene) => {
    await using stopped = await startMember(scene.server.url)
    await using other = await startMember(scene.server.url)
    const old = await stopped.ask('acquire', { lease: 'old', key: 'k', options: { ttl: TTL } })
    expect(await stopped.ask('write', { lease: 'old', register: 'register' })).toEqual({ outcome: 'written' })
    stopped.pause()
    const next = await other.ask('acquire', { lease: 'new', key: 'k' })
    expect(next.fence).toBeGreaterThan(old.fence)
    expect(await other.ask('write', { lease: 'new', register: 'register' })).toEqual({ outcome: 'written' })
    expect(stopped.losses).toEqual([])
    stopped.resume()
    expect(await stopped.ask('write', { lease: 'old', register: 'register' })).toEqual({ outcome: 'stale' })
    await until('it has noticed', () => stopped.losses.length === 1)
    expect(stopped.losses).toMatchObject([{ lease: 'old', reason: 'expired' }])
    expect(await scene.server.command('GET', 'register')).toBe(String(next.fence))
    // The old holder's release changes nothing for the new holder.
    await stopped.ask('release', { lease: 'old' })
    expect((await scene.room('k')).holders).toMatchObject([{ id: next.id, fence: next.fence, state: 'held' }])
    expect(other.losses).toEqual([])
    await other.ask('release', { lease: 'new' })
    await scene.server.command('DEL', 'register')
    expect(await stopped.end()).toBe(0)
    expect(await other.end()).toBe(0)
  }),
)

test(
  'a process whose event loop was blocked past its ttl knows it in the very next statement, before any timer has run',
  inScene(async (scene) => {
    await using member = await startMember(scene.server.url)
    const old = await member.ask('acquire', { lease: 'old', key: 'k', options: { ttl: TTL } })
    const waiting = scene.direct().acquire('k')
    await scene.untilQueued('k', 1)
    const blocked = member.ask('block', { lease: 'old', forMs: TTL + 500 })
    const next = await waiting
    // The next holder has the key already while the blocked process still stands still.
    expect(member.losses).toEqual([])
    expect(next.fence).toBeGreaterThan(old.fence)
    expect(await blocked).toEqual({ said: 'lease-lost', timers: 0 })
    await until('its signal has told', () => member.losses.length === 1)
    await next.release()
    expect(await member.end()).toBe(0)
  }),
)

test(
  'work that blocked the event loop past the ttl makes withLock reject, and the next holder has a higher fence',
  inScene(async (scene) => {
    await using member = await startMember(scene.server.url)
    const working = member.ask('workBlocked', { key: 'k', options: { ttl: TTL }, forMs: TTL + 500 })
    const held = await until('it holds the key', async () => (await scene.room('k')).holders[0])
    const next = await scene.direct().acquire('k')
    expect(next.fence).toBeGreaterThan(held.fence)
    expect(await working).toEqual({ said: 'lease-lost' })
    next.assertHeld()
    await next.release()
    expect(await member.end()).toBe(0)
  }),
)
