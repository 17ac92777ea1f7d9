import { describe, expect, test } from 'vitest'
import { runModule } from './child-process.ts'

/** A store that gives no more answers once it is `silent`. */
const SILENT_STORE = `
  const real = memoryStore()
  let silent = false
  const never = () => new Promise(() => {})
  const late = (verb) => (...args) => silent ? never() : Promise.resolve(real[verb](...args))
  const store = { name: 'silent', close: async () => {} }
  for (const verb of ['acquire', 'renew', 'release', 'inspect', 'evict']) store[verb] = late(verb)
`

// Each lease here lasts for an hour. If it kept the process alive, the process would be killed.
describe.concurrent('a process ends by itself', () => {
  test.each([
    ['with locks that nobody uses', 'const locks = createLocks(memoryStore()); console.log("end")'],
    ['holding a lease', 'await createLocks(memoryStore()).acquire("k", { ttl: "1h" }); console.log("end")'],
    [
      'holding a lease whose signal somebody listens to',
      `const lease = await createLocks(memoryStore()).acquire("k", { ttl: "1h" })
       lease.signal.addEventListener("abort", () => console.log("aborted"))
       console.log("end")`,
    ],
    [
      'after waits that are over',
      `const locks = createLocks(memoryStore())
       await Promise.all([1, 2, 3].map(() => locks.withLock("k", { ttl: "1h", wait: "1h" }, () => {})))
       console.log("end")`,
    ],
    [
      'after a wait that was aborted',
      `const locks = createLocks(memoryStore())
       await locks.acquire("k", { ttl: "1h" })
       const giveUp = new AbortController()
       const waiting = locks.acquire("k", { wait: Infinity, signal: giveUp.signal })
       setImmediate(() => giveUp.abort("enough"))
       await waiting.catch((reason) => console.log(reason === "enough" ? "end" : reason))`,
    ],
    [
      'while a give-back goes on behind the scenes',
      `${SILENT_STORE}
       const lease = await createLocks(store).acquire("k", { ttl: "1h" })
       silent = true
       await lease.release()
       console.log("end")`,
    ],
    [
      'after close()',
      `const locks = createLocks(memoryStore())
       await locks.acquire("k", { ttl: "1h" })
       const waiting = locks.acquire("k").catch((error) => console.log(error.code))
       await locks.close()
       await waiting
       console.log("end")`,
    ],
  ])('%s', async (_what, body) => {
    const { code, printed, complaints } = await runModule(body)
    expect(complaints).toBe('')
    expect(printed.split('\n').at(-1)).toBe('end')
    expect(code).toBe(0)
  })
})

// If nothing else kept the process alive, it would end with code 13: a promise that never settled.
describe.concurrent('a process stays for promises that it awaits', () => {
  test.each([
    [
      'a wait, until it is over',
      `const locks = createLocks(memoryStore())
       await locks.acquire("k", { ttl: "1h" })
       await locks.acquire("k", { wait: 400 }).catch((error) => console.log(error.code))`,
      'acquire-timeout',
    ],
    [
      'a wait for a lease that nobody will release',
      `const locks = createLocks(memoryStore())
       await locks.acquire("k", { ttl: 400, renew: false })
       const lease = await locks.acquire("k")
       console.log(lease.state)`,
      'held',
    ],
    [
      'a wait without an end, until its signal ends it',
      `const locks = createLocks(memoryStore())
       await locks.acquire("k", { ttl: "1h" })
       const signal = AbortSignal.timeout(400)
       await locks.acquire("k", { wait: Infinity, signal }).catch((error) => console.log(error.name))`,
      'TimeoutError',
    ],
    [
      'a wait for a store that is silent',
      `${SILENT_STORE}
       silent = true
       await createLocks(store).acquire("k", { ttl: 100, wait: 400 }).catch((error) => console.log(error.code))`,
      'store-unavailable',
    ],
    [
      'the release at a store that is silent',
      `${SILENT_STORE}
       const lease = await createLocks(store).acquire("k", { ttl: "1h" })
       silent = true
       await lease.release()
       console.log(lease.state)`,
      'released',
    ],
    [
      'an extend at a store that is silent',
      `${SILENT_STORE}
       const lease = await createLocks(store).acquire("k", { ttl: "3s", renew: false })
       silent = true
       // On a busy machine the lease ends first.
       await lease.extend().catch(({ code }) => console.log(["store-unavailable", "lease-lost"].includes(code)))`,
      'true',
    ],
    [
      'close() at a store that is silent',
      `${SILENT_STORE}
       const locks = createLocks(store)
       const lease = await locks.acquire("k", { ttl: "1h" })
       silent = true
       await locks.close()
       console.log(lease.state)`,
      'lost',
    ],
  ])('%s', async (_what, body, expected) => {
    const { code, printed, complaints } = await runModule(body)
    expect(complaints).toBe('')
    expect(printed).toBe(expected)
    expect(code).toBe(0)
  })

  test('and not for a wait that was left alone by everybody else: this is what the test above can see', async () => {
    const { code } = await runModule('await new Promise(() => {})')
    expect(code).toBe(13)
  })
})
