import { connect } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createDashboard, type Dashboard, type DashboardOptions } from '../../src/dashboard/index.ts'
import { createLocks, InvalidArgumentError, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { HOSTILE_VALUES } from '../base/hostile-values.ts'
import { ask, serve, type TestServer } from './dashboard-server.ts'

const FAILED = 'The dashboard could not answer a request.'
const TOKEN = 'correct-horse-battery'
const JSON_BODY = { 'content-type': 'application/json' }
let locks: Locks
let dashboard: Dashboard
let server: TestServer

async function start(options: DashboardOptions): Promise<void> {
  dashboard = createDashboard(locks, options)
  server = await serve(dashboard)
}

beforeEach(() => {
  locks = createLocks(memoryStore(), { label: 'test' })
})
afterEach(async () => {
  await dashboard.close()
  await server[Symbol.asyncDispose]()
  await locks.close()
})

function cookieOf(setCookie: readonly string[] | undefined): string {
  return setCookie?.[0]?.split(';')[0] ?? ''
}

describe('with a token', () => {
  beforeEach(() => start({ token: TOKEN, allowEvict: true }))

  test('the page shows nothing of the store without the token', async () => {
    await locks.acquire('secret-key')
    for (const path of ['/api/view', '/api/live', '/api/view?key=secret-key']) {
      const { status, text, headers } = await ask(server, { path })
      expect([status, headers['www-authenticate']]).toEqual([401, 'Bearer'])
      expect(text).not.toContain('secret-key')
    }
    const wrong = await ask(server, { path: '/api/view', headers: { authorization: 'Bearer wrong' } })
    expect(wrong.status).toBe(401)
    const evicted = await ask(server, { path: '/api/evict', method: 'POST', headers: JSON_BODY, body: '{}' })
    expect(evicted.status).toBe(401)
  })

  test('programs send it as Authorization: Bearer', async () => {
    const headers = { authorization: `Bearer ${TOKEN}` }
    expect((await ask(server, { path: '/api/view', headers })).status).toBe(200)
  })

  test('a browser that comes with it is given a cookie, and sent on to where it is not in the address', async () => {
    const { status, headers, text } = await ask(server, { path: `/?token=${TOKEN}` })
    expect([status, headers.location, text]).toEqual([303, './', ''])
    expect(headers['set-cookie']).toEqual([
      expect.stringMatching(/^holdfast-[\w-]{8}=[\w-]+; HttpOnly; SameSite=Strict$/),
    ])
    const cookie = cookieOf(headers['set-cookie'])
    expect(cookie).not.toContain(TOKEN)
    expect((await ask(server, { path: '/api/view', headers: { cookie } })).status).toBe(200)
    const others = `a=b; ${cookie}; c=d`
    expect((await ask(server, { path: '/api/view', headers: { cookie: others } })).status).toBe(200)
    expect((await ask(server, { path: '/api/view', headers: { cookie: `${cookie}x` } })).status).toBe(401)
  })

  test('a wrong one in the address gives no cookie, and leaves the address, too', async () => {
    const { status, headers } = await ask(server, { path: '/?token=wrong' })
    expect([status, headers.location, headers['set-cookie']]).toEqual([303, './', undefined])
  })

  test('an address without its slash gives no cookie, because that would be one of the folder above', async () => {
    await using mounted = await serve(createDashboard(locks, { token: TOKEN, path: '/locks' }))
    const bare = await ask(mounted, { path: `/locks?token=${TOKEN}` })
    expect([bare.headers.location, bare.headers['set-cookie']]).toEqual([
      `./locks/?token=${TOKEN}`,
      undefined,
    ])
    const { headers } = await ask(mounted, { path: `/locks/?token=${TOKEN}` })
    expect([headers.location, headers['set-cookie']?.length]).toEqual(['./', 1])
  })

  test('the cookie is for encrypted connections alone where there are such', async () => {
    for (const scheme of ['https', 'https, http']) {
      const headers = { 'x-forwarded-proto': scheme }
      const answer = await ask(server, { path: `/?token=${TOKEN}`, headers })
      expect(answer.headers['set-cookie']?.[0]).toMatch(/; Secure$/)
    }
  })

  test('it can be typed into the page', async () => {
    const open = (token: unknown) =>
      ask(server, {
        path: '/api/session',
        method: 'POST',
        headers: JSON_BODY,
        body: JSON.stringify({ token }),
      })
    const right = await open(TOKEN)
    expect(right.status).toBe(200)
    const cookie = cookieOf(right.headers['set-cookie'])
    expect((await ask(server, { path: '/api/view', headers: { cookie } })).status).toBe(200)
    for (const wrong of ['', 'wrong', null, 1, [TOKEN]]) expect((await open(wrong)).status).toBe(401)
  })

  test('a cookie of a dashboard with another token is none', async () => {
    const { headers } = await ask(server, { path: `/?token=${TOKEN}` })
    const other = await serve(createDashboard(locks, { token: 'another-token-of-16' }))
    const cookie = cookieOf(headers['set-cookie'])
    expect((await ask(other, { path: '/api/view', headers: { cookie } })).status).toBe(401)
    await other[Symbol.asyncDispose]()
  })

  test('pages of other sites are refused, whatever they know', async () => {
    const { headers } = await ask(server, { path: `/?token=${TOKEN}` })
    const known = [
      { cookie: cookieOf(headers['set-cookie']) },
      { authorization: `Bearer ${TOKEN}` },
    ] as unknown as Record<string, string>[]
    const foreign = [
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: `http://127.0.0.1:${server.port + 1}` },
      { origin: `http://localhost:${server.port}` },
    ] as unknown as Record<string, string>[]
    const lease = await locks.acquire('k')
    for (const credentials of known) {
      for (const site of foreign) {
        const all = { ...credentials, ...site, ...JSON_BODY }
        const body = JSON.stringify({ key: 'k', ids: [lease.id], reason: 'evil' })
        expect((await ask(server, { path: '/api/evict', method: 'POST', headers: all, body })).status).toBe(
          403,
        )
        for (const path of ['/api/view', '/api/live'])
          expect((await ask(server, { path, headers: all })).status).toBe(403)
      }
      const own = {
        ...credentials,
        origin: `http://127.0.0.1:${server.port}`,
        'sec-fetch-site': 'same-origin',
      }
      expect((await ask(server, { path: '/api/view', headers: own })).status).toBe(200)
    }
    expect(lease.state).toBe('held')
  })

  test('a form cannot evict: it cannot send JSON', async () => {
    const lease = await locks.acquire('k')
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
      const answer = await ask(server, {
        path: '/api/evict',
        method: 'POST',
        headers: { authorization: `Bearer ${TOKEN}`, 'content-type': type },
        body: JSON.stringify({ key: 'k', ids: [lease.id], reason: 'evil' }),
      })
      expect(answer.status).toBe(400)
    }
    lease.assertHeld()
    const looked = await ask(server, {
      path: '/api/view?key=k',
      headers: { authorization: `Bearer ${TOKEN}` },
    })
    expect(JSON.parse(looked.text).holders).toHaveLength(1)
  })
})

test('a proxy that changes the host does not make our own page foreign', async () => {
  await start({ token: TOKEN, allowEvict: true })
  const { status } = await ask(server, {
    path: '/api/evict',
    method: 'POST',
    headers: {
      ...JSON_BODY,
      authorization: `Bearer ${TOKEN}`,
      host: 'upstream:8080',
      origin: 'https://locks.example',
      'sec-fetch-site': 'same-origin',
    },
    body: JSON.stringify({ key: 'nobody', ids: ['a'], reason: 'x' }),
  })
  expect(status).toBe(200)
})

describe('without a token', () => {
  beforeEach(() => start({}))

  test('browsers on this machine may look', async () => {
    for (const host of [`127.0.0.1:${server.port}`, `localhost:${server.port}`, `[::1]:${server.port}`]) {
      expect((await ask(server, { path: '/api/view', headers: { host } })).status).toBe(200)
    }
  })

  test('names that somebody has made to lead here are refused (DNS rebinding)', async () => {
    for (const host of [
      'evil.example',
      `evil.example:${server.port}`,
      '127.0.0.1.evil.example',
      'x@127.0.0.1',
    ]) {
      const { status } = await ask(server, { path: '/api/view', headers: { host } })
      expect([host, status]).toEqual([host, 403])
    }
  })

  test('a request that a proxy has passed on is refused', async () => {
    for (const name of [
      'forwarded',
      'x-forwarded-for',
      'x-forwarded-host',
      'x-forwarded-proto',
      'x-real-ip',
      'via',
      'cf-connecting-ip',
    ]) {
      const { status, text } = await ask(server, { path: '/api/view', headers: { [name]: '127.0.0.1' } })
      expect(status).toBe(403)
      expect(JSON.parse(text).message).toContain('Start the dashboard with one.')
    }
  })

  test('so is HTTP/1.0, which no browser speaks, but nginx does, without any mark of its own', async () => {
    const socket = connect(server.port, '127.0.0.1')
    socket.end(`GET /api/view HTTP/1.0\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`)
    let answer = ''
    for await (const part of socket.setEncoding('utf8')) answer += part
    expect(answer).toMatch(/^HTTP\/1\.1 403 /)
  })

  test('no ticket can be evicted, as that was not switched on', async () => {
    const lease = await locks.acquire('k')
    const { status } = await ask(server, {
      path: '/api/evict',
      method: 'POST',
      headers: JSON_BODY,
      body: JSON.stringify({ key: 'k', ids: [lease.id], reason: 'x' }),
    })
    expect(status).toBe(403)
    expect(lease.state).toBe('held')
    const view = JSON.parse((await ask(server, { path: '/api/view?key=k' })).text)
    expect([view.site.allowEvict, view.holders.length]).toEqual([false, 1])
  })
})

test('an application decides by itself, and its error shows nothing', async () => {
  await start({
    authorize: async ({ headers }) => {
      if (headers['x-user'] === 'broken') throw new Error('the session store is at redis://:secret@host')
      return headers['x-user'] === 'admin'
    },
  })
  const warned = new Promise<Error>((resolve) => process.once('warning', resolve))
  const as = (user: string) =>
    ask(server, { path: '/api/view', headers: { 'x-user': user, host: 'app.example' } })
  expect((await as('admin')).status).toBe(200)
  expect(await as('somebody')).toMatchObject({
    status: 403,
    text: JSON.stringify({ message: 'Your session does not allow this, or has ended.' }),
  })
  const broken = await as('broken')
  expect(broken.status).toBe(500)
  expect(broken.text).not.toContain('secret')
  expect(await warned).toMatchObject({ detail: expect.stringContaining('session store') })
})

test.each(HOSTILE_VALUES)(
  'an application whose `authorize` throws %s is answered, and goes on',
  async (_, make) => {
    await start({
      authorize: () => {
        throw make()
      },
    })
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    for (const path of ['/api/view', '/api/live'])
      expect((await ask(server, { path, headers: { host: 'app.example' } })).status).toBe(500)
    expect(warn.mock.calls.map(([message]) => message)).toEqual([FAILED, FAILED])
    warn.mockRestore()
  },
)

test('another origin may send requests where it was named', async () => {
  await start({ token: TOKEN, origins: ['https://locks.example'] })
  const from = (origin: string) =>
    ask(server, { path: '/api/view', headers: { origin, authorization: `Bearer ${TOKEN}` } })
  expect((await from('https://locks.example')).status).toBe(200)
  expect((await from('https://locks.example.evil')).status).toBe(403)
})

test.each<
  [string, DashboardOptions, { readonly sends?: object; readonly look: number; readonly evict: number }]
>([
  ['nothing', {}, { look: 200, evict: 403 }],
  [
    'nothing, from a name that was made to lead here',
    {},
    { sends: { host: 'evil.example' }, look: 403, evict: 403 },
  ],
  ['allowEvict', { allowEvict: true }, { look: 200, evict: 200 }],
  [
    'allowEvict, through a proxy',
    { allowEvict: true },
    { sends: { 'x-forwarded-for': '10.0.0.1' }, look: 403, evict: 403 },
  ],
  [
    'allowEvict, through a proxy that changes the host and leaves no mark',
    { allowEvict: true },
    {
      sends: { origin: 'https://locks.example', 'sec-fetch-site': 'same-origin' },
      look: 403,
      evict: 403,
    },
  ],
  [
    'allowEvict, from a page on this machine',
    { allowEvict: true },
    { sends: { origin: 'http://localhost:1', 'sec-fetch-site': 'same-origin' }, look: 200, evict: 200 },
  ],
  ['a token', { token: TOKEN }, { look: 401, evict: 401 }],
  [
    'a token that is sent',
    { token: TOKEN },
    { sends: { authorization: `Bearer ${TOKEN}` }, look: 200, evict: 403 },
  ],
  [
    'a token that is sent, and allowEvict',
    { token: TOKEN, allowEvict: true },
    { sends: { authorization: `Bearer ${TOKEN}` }, look: 200, evict: 200 },
  ],
  ['authorize that says no', { authorize: () => false, allowEvict: true }, { look: 403, evict: 403 }],
  ['authorize that says yes', { authorize: () => true }, { look: 200, evict: 403 }],
  [
    'authorize that says yes, and allowEvict',
    { authorize: () => true, allowEvict: true },
    { look: 200, evict: 200 },
  ],
  [
    'authorize that says yes to a page of another site',
    { authorize: () => true, allowEvict: true },
    { sends: { origin: 'https://evil.example' }, look: 403, evict: 403 },
  ],
  [
    'authorize that says yes to a page of a site that is named',
    { authorize: () => true, allowEvict: true, origins: ['https://locks.example'] },
    { sends: { origin: 'https://locks.example' }, look: 200, evict: 200 },
  ],
])(
  'with %s, looking and evicting are answered as documented',
  async (_, options, { sends = {}, ...expected }) => {
    await start(options)
    const { id } = await locks.acquire('k')
    const headers = { ...JSON_BODY, ...sends }
    const body = JSON.stringify({ key: 'k', ids: [id], reason: 'stuck' })
    const looked = await ask(server, { path: '/api/view', headers })
    const evicted = await ask(server, { path: '/api/evict', method: 'POST', headers, body })
    expect({ look: looked.status, evict: evicted.status }).toEqual(expected)
    const { done: isFree } = await locks.inspect().next()
    expect(isFree).toBe(expected.evict === 200)
  },
)

test('no address, method, header or body is a mistake of the server', async () => {
  await start({ allowEvict: true })
  const warned: Error[] = []
  const note = (warning: Error) => warned.push(warning)
  process.on('warning', note)
  const paths = [
    '/%00',
    '/%',
    '/%zz',
    '/%c0%af',
    '/api/%00',
    '/api/view%00',
    '/?token=%00',
    '/?%',
    '/%00/',
    '//%00',
  ]
  const queries = [
    'key=%00',
    'key=%',
    'search=%ff',
    'page=1e999',
    'page=-1',
    'sort=__proto__',
    'show=%00',
    'view=%00',
  ]
  const all = [...paths, ...queries.map((query) => `/api/view?${query}`)]
  for (const path of all) {
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'OPTIONS']) {
      const { status } = await ask(server, { path, method, headers: { connection: 'close' } })
      expect([method, path, status < 500]).toEqual([method, path, true])
    }
  }
  const odd = {
    authorization: 'Bearer \xff',
    cookie: '=;=;;a',
    origin: 'http://[',
    'x-forwarded-proto': '\xff',
  }
  for (const [name, value] of Object.entries(odd)) {
    for (const path of ['/', '/api/view', `/?token=${TOKEN}`]) {
      const { status } = await ask(server, { path, headers: { [name]: value } })
      expect([name, path, status < 500]).toEqual([name, path, true])
    }
  }
  process.off('warning', note)
  expect(warned).toEqual([])
})

test('options that are not what they should be are refused in one sentence', async () => {
  await start({})
  const wrong: [object, RegExp][] = [
    [
      { token: 'short' },
      /^Expected `token` to be at least 16 characters of ASCII without spaces, got something else\.$/,
    ],
    [{ token: TOKEN, authorize: () => true }, /^Expected one of `token` and `authorize`, got both\.$/],
    [{ authorize: 1 }, /^Expected `authorize` to be a function, got 1\.$/],
    [{ allowEvict: 'yes' }, /^Expected `allowEvict` to be true or false, got "yes"\.$/],
    [{ path: 'locks' }, /^Expected `path` to be like \/locks, or empty, got "locks"\.$/],
    [{ prefix: 1 }, /^Expected `prefix` to be a string, got 1\.$/],
    [{ title: 1 }, /^Expected `title` to be a string, got 1\.$/],
    [{ allowJobChanges: true }, /^Expected `jobs` together with `allowJobChanges`, got none\.$/],
    [{ jobs: {} }, /^Expected `jobs` to be what createJobs\(\) or openJobs\(\) returns, got /],
    [{ origins: ['locks.example'] }, /^Expected `origins` to be an array such as .*, got "locks.example"\.$/],
    [
      { origins: 'https://a.example' },
      /^Expected `origins` to be an array such as .*, got "https:\/\/a.example"\.$/,
    ],
    [{ tokens: TOKEN }, /^Expected the options to be among `token`, .*, got `tokens`\.$/],
  ]
  for (const [options, message] of wrong) {
    const make = () => createDashboard(locks, options)
    expect(make).toThrow(InvalidArgumentError)
    expect(make).toThrow(message)
  }
  expect(() => createDashboard('redis://' as unknown as Locks)).toThrow(/^Expected `locks` to be what /)
})
