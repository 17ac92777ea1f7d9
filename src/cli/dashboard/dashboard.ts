import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { isLoopback } from '../../base/loopback.ts'
import { createDashboard } from '../../dashboard/index.ts'
import { isHoldfastError } from '../../index.ts'
import { type Jobs, openJobs } from '../../jobs/index.ts'
import type { Arguments, Command } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { openLocks, storeOption, urlOf } from '../store-option.ts'
import { print } from '../terminal.ts'
import { json } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'

export const dashboard: Command = {
  name: 'dashboard',
  usage: '[options]',
  summary: 'Shows who holds what, live, in a browser.',
  options: {
    port: { value: 'N', help: 'where it listens; 0 for any that is free; default: 7575' },
    host: { value: 'NAME', help: 'default: 127.0.0.1, which only this machine can reach' },
    token: { value: 'TEXT', help: 'who knows it may look; default: HOLDFAST_DASHBOARD_TOKEN' },
    'allow-evict': { help: 'who may look may also evict; makes a token where none is given' },
    prefix: { value: 'TEXT', help: 'only keys that begin with it' },
    title: { value: 'TEXT', help: 'what stands at the top; default: the kind of store' },
    json: { help: 'the address as one JSON object on one line' },
    store: storeOption,
  },
  details: `It only looks: without --allow-evict nothing can be changed. Beyond this machine
it needs a token, and something in front of it that encrypts. Others on this
machine can read a command line: better than --token is
HOLDFAST_DASHBOARD_TOKEN.
Jobs are shown where the store is PostgreSQL and has their tables. Ctrl-C ends
it.`,
  async run(given: Arguments): Promise<number> {
    if (given.words.length > 0) throw expected('the command', 'given without words', given.words[0])
    const place = placeOf(given)
    const token = tokenFor(given, place)
    const url = await urlOf(given)
    const scheme = (/^[a-z+]+/i.exec(url)?.[0] ?? '').toLowerCase()
    await using locks = await openLocks(given)
    await using jobs = /^postgres(ql)?$/.test(scheme) ? await jobsIn(url) : undefined
    const handler = createDashboard(locks, {
      token,
      allowEvict: given.flag('allow-evict'),
      prefix: given.text('prefix'),
      title: given.text('title') ?? `Locks in ${scheme}`,
      jobs,
    })
    const server = createServer(handler)
    try {
      const port = await listen(server, place)
      const address = addressOf({ ...place, port }, token)
      print(given.flag('json') ? json({ url: address }) : `${address}\nCtrl-C ends it.`)
      await interruption()
    } finally {
      handler.close()
      server.close()
      server.closeAllConnections()
    }
    return EXIT.ok
  },
}

/** Undefined where nobody has made the tables for them, or we may not look into these. */
async function jobsIn(url: string): Promise<Jobs | undefined> {
  const jobs = await openJobs(url)
  try {
    await jobs.find('1')
    return jobs
  } catch (error) {
    if (!isHoldfastError(error, 'store-refused')) return jobs
    await jobs.close()
    return undefined
  }
}

interface Place {
  readonly host: string
  readonly port: number
}

function placeOf(given: Arguments): Place {
  const port = given.count('port', { least: 0, most: 65_535 }) ?? 7575
  return { host: given.text('host') ?? '127.0.0.1', port }
}

function tokenFor(given: Arguments, { host }: Place): string | undefined {
  const token = given.text('token') ?? (process.env['HOLDFAST_DASHBOARD_TOKEN'] || undefined)
  if (token !== undefined) return token
  if (!isLoopback(host)) {
    throw new UsageError(
      `Expected a token (--token or HOLDFAST_DASHBOARD_TOKEN) where --host is beyond this machine, got none for ${JSON.stringify(host)}.`,
    )
  }
  // Whoever else is logged in on this machine may look, but not evict.
  return given.flag('allow-evict') ? randomBytes(18).toString('base64url') : undefined
}

async function listen(server: Server, { host, port }: Place): Promise<number> {
  try {
    server.listen(port, host)
    await once(server, 'listening')
    return (server.address() as AddressInfo).port
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    const sentence = REFUSALS[code]
    if (sentence === undefined) throw error
    throw new UsageError(
      `Expected --host and --port to be a free place to listen, but ${host}:${port} ${sentence}.`,
    )
  }
}

const REFUSALS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'is taken',
  EACCES: 'may not be used by this user',
  EADDRNOTAVAIL: 'is not of this machine',
  ENOTFOUND: 'is not known by name',
}

function addressOf({ host, port }: Place, token: string | undefined): string {
  const isEvery = host === '0.0.0.0' || host === '::'
  const name = isEvery ? hostname() : host.includes(':') ? `[${host}]` : host
  return `http://${name}:${port}/${token === undefined ? '' : `?token=${encodeURIComponent(token)}`}`
}

function interruption(): Promise<void> {
  return new Promise((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, () => resolve())
  })
}
