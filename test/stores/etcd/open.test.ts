import { spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { connect } from '../../../src/index.ts'
import { etcdStore, openEtcd } from '../../../src/stores/etcd/index.ts'
import { bundled } from '../../servers/bundled.ts'
import { certificate, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { freePort } from '../../servers/free-port.ts'
import { startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

test('a change of the users makes no token of the store useless for long', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-jwt-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const { publicKey, privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs1', format: 'pem' },
  })
  const [publicFile, privateFile] = [join(folder, 'public.pem'), join(folder, 'private.pem')]
  writeFileSync(publicFile, publicKey)
  writeFileSync(privateFile, privateKey)
  // Such a token carries the revision of the users, and is good for none but that.
  const jwt = `jwt,pub-key=${publicFile},priv-key=${privateFile},sign-method=RS256,ttl=1h`
  await using server = await startEtcd({ args: ['--auth-token', jwt] })
  const token = await server.enableAuth('sesame')
  const auth = { username: 'root', password: 'sesame' }
  const store = etcdStore({ endpoints: [server.url], auth })
  const mine = ticket()
  fenceOf(await store.acquire(mine))
  await server.call('/v3/auth/user/add', { name: 'another', password: 'sesame' }, { token })
  fenceOf(await store.acquire(ticket()))
  fenceOf((await store.renew([mine]))[0])
  await store.close()
})

describe('an etcd with a password', () => {
  let server: EtcdServer
  let token: string
  beforeAll(async () => {
    server = await startEtcd({ args: ['--auth-token-ttl', '2'] })
    await server.call('/v3/auth/role/add', { name: 'locks' })
    const perm = { permType: 'READWRITE', key: bytes('holdfast/'), range_end: bytes('holdfast0') }
    await server.call('/v3/auth/role/grant', { name: 'locks', perm })
    await server.call('/v3/auth/user/add', { name: 'app', password: 'p@ss/word' })
    await server.call('/v3/auth/user/grant', { user: 'app', role: 'locks' })
    token = await server.enableAuth('sesame')
  })
  afterAll(() => server.close())

  test('is opened by a url, and closes what it has opened', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = await openEtcd(`etcd://app:p%40ss%2Fword@127.0.0.1:${proxy.port}`)
    const [mine, next] = [ticket({ key: 'k' }), ticket({ key: 'k' })]
    const fence = fenceOf(await store.acquire(mine))
    expect(await store.acquire(next)).toMatchObject({ tag: 'queued', ahead: 0 })
    await store.release(releaseOf(mine))
    expect(fenceOf(await store.acquire(next))).toBeGreaterThan(fence)
    await store.release(releaseOf(next))
    await store.close()
    await until('nothing is connected', () => proxy.connections === 0)
  })

  test('goes on when its token has expired, in requests and in watches', async () => {
    const store = await openEtcd(`etcd://app:p%40ss%2Fword@127.0.0.1:${server.port}`)
    const woken: string[] = []
    await store.listen?.((wake) => wake.tag === 'ticket' && woken.push(wake.id))
    const old = ticket()
    fenceOf(await store.acquire(old))
    await until('a token of that age is good no more', () => expired(token), {
      everyMs: 500,
    })
    fenceOf((await store.renew([old]))[0])
    const [mine, next] = [ticket({ key: 'later' }), ticket({ key: 'later' })]
    fenceOf(await store.acquire(mine))
    expect(await store.acquire(next)).toMatchObject({ tag: 'queued' })
    await store.release(releaseOf(mine))
    await until('it is woken', () => woken.includes(next.id))
    fenceOf(await store.acquire(next))
    await store.close()
  })

  test('is asked for one new token, however many requests find that theirs has expired', async () => {
    const store = await openEtcd(`etcd://app:p%40ss%2Fword@127.0.0.1:${server.port}`)
    // The requests for which others wait are done before the test counts.
    const first = ticket()
    fenceOf(await store.acquire(first))
    await store.release(releaseOf(first))
    const user = { name: 'root', password: 'sesame' }
    const younger = String((await server.call('/v3/auth/authenticate', user))['token'])
    await until('a token of that age is good no more', () => expired(younger), {
      everyMs: 500,
    })
    const before = (await server.requests())['Authenticate'] ?? 0
    const tickets = Array.from({ length: 200 }, () => ticket({ patienceMs: 0 }))
    for (const answer of await Promise.all(tickets.map((one) => store.acquire(one)))) fenceOf(answer)
    // Two requests, if the new token has expired by then, too.
    expect(((await server.requests())['Authenticate'] ?? 0) - before).toBeLessThanOrEqual(2)
    await store.close()
  })

  test.each([
    ['a wrong password', { username: 'app', password: 'sesami' }, {}, /user name and password/],
    ['a user that is not there', { username: 'nobody', password: 'sesame' }, {}, /user name and password/],
    ['no password', undefined, {}, /asks for a user name and password.*`auth`/],
    [
      'a prefix it may not write',
      { username: 'app', password: 'p@ss/word' },
      { prefix: 'other/' },
      /"other\/".*readwrite/,
    ],
  ])('says in one sentence what is wrong with %s', async (_, auth, options, message) => {
    const store = etcdStore({ endpoints: [server.url], ...(auth === undefined ? {} : { auth }), ...options })
    for (const call of [
      () => store.acquire(ticket()),
      () => store.renew([ticket()]),
      () => store.release({ key: 'k', id: 'x', cancel: true }),
      () => store.inspect({ prefix: '', cursor: undefined, count: 1 }),
    ]) {
      const error = await Promise.resolve(call()).then(
        () => undefined,
        (reason: unknown) => reason,
      )
      expect(error).toMatchObject({ code: 'store-refused', message: expect.stringMatching(message) })
      expect(String(error)).not.toMatch(/sesam|p@ss/)
    }
    await store.close()
  })

  test('is used with one from the moment on that it asks for it', async () => {
    await using open = await startEtcd()
    const store = etcdStore({ endpoints: [open.url], auth: { username: 'root', password: 'sesame' } })
    fenceOf(await store.acquire(ticket()))
    await open.enableAuth('sesame')
    fenceOf(await store.acquire(ticket()))
    await store.close()
  })

  async function expired(old: string): Promise<boolean> {
    try {
      await server.call('/v3/kv/range', { key: bytes('k') }, { token: old })
      // Each use would keep the token alive, so this waits for longer than the token lives.
      await new Promise((resolve) => setTimeout(resolve, 3000))
      return false
    } catch (error) {
      return String(error).includes('invalid auth token')
    }
  }
})

const pem = (name: string) => readFileSync(certificate(name))

describe('an etcd with TLS', () => {
  test('is talked to when its certificate is trusted, and refused with the reason when it is not', async () => {
    await using server = await startEtcd({ tls: 'server' })
    const trusting = etcdStore({ endpoints: [server.url], tls: { ca: pem('authority.pem') } })
    const mine = ticket()
    fenceOf(await trusting.acquire(mine))
    await trusting.release(releaseOf(mine))
    await trusting.close()
    await expectRefused({ endpoints: [server.url] }, /not signed by an authority.*`tls\.ca`/)
    await expectRefused(
      { endpoints: [server.url], tls: { ca: pem('authority.pem'), servername: 'elsewhere' } },
      /another host name/,
    )
    // The server hangs up without a word.
    const plain = etcdStore({ endpoints: [server.url.replace('https', 'http')] })
    await expect(plain.acquire(ticket())).rejects.toMatchObject({
      message: expect.stringMatching(/speak TLS/),
    })
    await plain.close()
    await expect(openEtcd(`etcds://localhost:${server.port}`)).rejects.toMatchObject({
      code: 'store-refused',
    })
  })

  test('is let in by its own certificate where etcd asks for one', async () => {
    await using server = await startEtcd({ tls: 'mutual' })
    const ca = pem('authority.pem')
    const tls = { ca, cert: pem('client.pem'), key: pem('client.key') }
    const store = etcdStore({ endpoints: [server.url], tls })
    fenceOf(await store.acquire(ticket()))
    await store.close()
    await expectRefused({ endpoints: [server.url], tls: { ca } }, /certificate of this client.*`tls\.cert`/)
    await expectRefused(
      { endpoints: [server.url], tls: { ca, cert: pem('expired.pem'), key: pem('expired.key') } },
      /certificate of this client/,
    )
  })

  test('says that the certificate has expired', async () => {
    await using server = await startEtcd({ tls: 'server', certificate: 'expired' })
    await expectRefused({ endpoints: [server.url], tls: { ca: pem('authority.pem') } }, /has expired/)
  })
})

describe('what is not an etcd', () => {
  test('is named as such', async () => {
    await using redis = await startRedis()
    await expectRefused({ endpoints: [`http://127.0.0.1:${redis.port}`] }, /not etcd/)
  })

  test('is unavailable where nobody is, or no such host', async () => {
    const endpoints = [`http://127.0.0.1:${await freePort()}`, 'http://no-such-host.invalid:2379']
    const store = etcdStore({ endpoints })
    await expect(store.acquire(ticket())).rejects.toMatchObject({
      code: 'store-unavailable',
      message: expect.stringMatching(/^No etcd member could be reached/),
    })
    await store.close()
    await expect(connect(`etcd://127.0.0.1:${await freePort()}`)).rejects.toMatchObject({
      code: 'store-unavailable',
    })
  })

  test('refuses a ttl so short that etcd would keep the key of a dead process for longer', async () => {
    await using server = await startEtcd({
      args: ['--heartbeat-interval', '300', '--election-timeout', '3000'],
    })
    const store = etcdStore({ endpoints: [server.url] })
    await expect(store.acquire(ticket({ ttlMs: 1000 }))).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/no lease for less than 5 s.*ttl of 3333 ms or more/),
    })
    fenceOf(await store.acquire(ticket({ ttlMs: 3333 })))
    await store.close()
  })
})

describe('bad input', () => {
  test.each([
    ['no endpoints', { endpoints: [] }, /`endpoints` to be an array with at least one URL/],
    [
      'an endpoint that is no URL',
      { endpoints: ['localhost'] },
      /`endpoints` to be like .*, got something that is not/,
    ],
    ['another scheme', { endpoints: ['etcd://localhost:2379'] }, /begins with etcd:/],
    ['a password in an endpoint', { endpoints: ['http://a:sesame@localhost:2379'] }, /go into `auth`/],
    ['http and https', { endpoints: ['http://a:1', 'https://b:1'] }, /all with https:, got both/],
    ['a user without password', { endpoints: ['http://a:1'], auth: { username: 'a' } }, /`auth` to have/],
    ['an empty prefix', { endpoints: ['http://a:1'], prefix: '' }, /`prefix` to be a string with at least/],
    ['no options', undefined, /^Expected the options to be an object, got undefined\.$/],
    ['a misspelt option', { endpoints: ['http://a:1'], perfix: 'x' }, /among .*`prefix`, .*got `perfix`/],
    ['TLS that is none', { endpoints: ['https://a:1'], tls: null }, /options to be an object, got null/],
    ['a misspelt option of TLS', { endpoints: ['https://a:1'], tls: { crt: 'x' } }, /got `crt`/],
    ['a server name that is none', { endpoints: ['https://a:1'], tls: { servername: 5 } }, /`servername`/],
    ['TLS for http', { endpoints: ['http://a:1'], tls: { ca: '' } }, /to begin with https:.*`tls`/],
    ['a certificate that is none', { endpoints: ['https://a:1'], tls: { cert: 'sesame' } }, /`tls` to have/],
    ['an authority that is none', { endpoints: ['https://a:1'], tls: { ca: 5 } }, /`tls` to have/],
    [
      'a certificate of another key',
      { endpoints: ['https://a:1'], tls: { cert: pem('client.pem'), key: pem('expired.key') } },
      /`tls` to have/,
    ],
  ])('%s', (_, options, message) => {
    const make = () => etcdStore(options as Parameters<typeof etcdStore>[0])
    expect(make).toThrow(
      expect.objectContaining({ code: 'invalid-argument', message: expect.stringMatching(message) }),
    )
    expect(make).not.toThrow(/sesame/)
  })

  test.each([
    [null, /options to be an object, got null/],
    [{ perfix: 'x' }, /got `perfix`/],
    [{ tls: { ca: '' } }, /to begin with https:.*`tls`/],
  ])('options of openEtcd: %o', async (options, message) => {
    const url = `etcd://127.0.0.1:${await freePort()}`
    await expect(openEtcd(url, options as never)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringMatching(message),
    })
  })

  test.each([
    ['no url', 'etcd', /got something else/],
    ['a path', 'etcd://host/locks', /got something else/],
    ['a user alone', 'etcd://sesame@host', /a user or a password, and not both/],
    ['a % that is none', 'etcd://a:sesame%@host', /a % that is not written as %25/],
  ])('%s', async (_, url, message) => {
    await expect(openEtcd(url)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringMatching(message),
    })
    await expect(openEtcd(url)).rejects.not.toMatchObject({ message: expect.stringMatching(/sesame/) })
  })
})

describe('a process that forgets to close', () => {
  test('ends all the same, with a lease held, a waiter forgotten and wakes flowing', async () => {
    await using server = await startEtcd()
    const program = await bundled(new URL('forgetful.ts', import.meta.url))
    const child = spawn(process.execPath, [program, server.url])
    const timer = setTimeout(() => child.kill('SIGKILL'), 120_000)
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk
    })
    const [code, signal] = await once(child, 'exit')
    clearTimeout(timer)
    expect([code, signal, output]).toEqual([0, null, 'held\n'])
  })
})

async function expectRefused(options: Parameters<typeof etcdStore>[0], message: RegExp): Promise<void> {
  const store = etcdStore(options)
  await expect(store.acquire(ticket())).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringMatching(message),
  })
  await store.close()
}

function bytes(text: string): string {
  return Buffer.from(text).toString('base64')
}
