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
import { fileOption, type Secret, type SecretOption, secretOf } from '../secret.ts'
import { openLocks, storeOptions, urlOf } from '../store-option.ts'
import { print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'

const TOKEN: SecretOption = { name: 'token', variable: 'HOLDFAST_DASHBOARD_TOKEN' }

export const dashboard: Command = {
  name: 'dashboard',
  usage: '[options]',
  summary: 'Shows who holds what, live, in a browser.',
  options: {
    port: { value: 'N', help: 'where it listens; 0 for any that is free; default: 7575' },
    host: { value: 'NAME', help: 'default: 127.0.0.1, which only this machine can reach' },
    token: {
      value: 'TEXT',
      help: 'who knows it may look; default: HOLDFAST_DASHBOARD_TOKEN. Others can read it here: see --token-file',
    },
    ...fileOption(TOKEN),
    'allow-evict': { help: 'who may look may also evict; in a terminal makes a token where none is given' },
    prefix: { value: 'TEXT', help: 'only keys that begin with it' },
    title: { value: 'TEXT', help: 'what stands at the top; default: the kind of store' },
    json: { help: 'the address as one JSON object on one line' },
    ...storeOptions(),
  },
  details: `It only looks: without --allow-evict nothing can be changed. Beyond this machine
it needs a token, and something in front of it that encrypts. The address that
it prints has the token in it in a terminal alone, and not where a journal or a
file keeps it.
Jobs are shown where the store is PostgreSQL and has their tables. Ctrl-C ends
it.`,
  async run(given: Arguments): Promise<number> {
    if (given.words.length > 0) throw expected('the command', 'given without words', given.words[0])
    const place = placeOf(given)
    const token = tokenFor(given, place)
    const url = await urlOf(given)
    const scheme = (/^[a-z+]+/i.exec(url)?.[0] ?? '').toLowerCase()
    await using locks = await openLocks(url)
    await using jobs = /^postgres(ql)?$/.test(scheme) ? await jobsIn(url) : undefined
    const handler = createDashboard(locks, {
      token: token?.text,
      allowEvict: given.flag('allow-evict'),
      prefix: given.text('prefix'),
      title: given.text('title') ?? `Locks in ${scheme}`,
      jobs,
    })
    const server = createServer(handler)
    try {
      const port = await listen(server, place)
      // A journal or a file would keep it, and others may read that.
      const address = addressOf({ ...place, port }, process.stdout.isTTY ? token?.text : undefined)
      if (given.flag('json')) print(json({ url: address }))
      else for (const line of opening(address, token)) print(line)
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

function tokenFor(given: Arguments, { host }: Place): Token | undefined {
  const token = secretOf(given, TOKEN)
  if (token !== undefined) return token
  const ways = '--token-file or HOLDFAST_DASHBOARD_TOKEN'
  if (!isLoopback(host)) {
    throw new UsageError(
      `Expected a token (${ways}) where --host is beyond this machine, got none for ${JSON.stringify(host)}.`,
    )
  }
  // Whoever else is logged in on this machine may look, but not evict.
  if (!given.flag('allow-evict')) return undefined
  if (process.stdout.isTTY) return { text: randomBytes(18).toString('base64url'), source: undefined }
  throw new UsageError(
    `Expected a token (${ways}) with --allow-evict where standard output is no terminal, got none: one that is made here could be shown to nobody.`,
  )
}

interface Token extends Pick<Secret, 'text'> {
  /** Undefined where it was made here. */
  readonly source: string | undefined
}

function opening(address: string, token: Token | undefined): readonly string[] {
  const isAsked = token?.source !== undefined && !process.stdout.isTTY
  return [
    address,
    ...(isAsked ? [`It asks for the token of ${plain(token.source)}.`] : []),
    'Ctrl-C ends it.',
  ]
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
