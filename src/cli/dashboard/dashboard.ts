import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { isLoopback } from '../../base/loopback.ts'
import {
  createDashboard,
  type Dashboard,
  type DashboardOptions,
  type RecordOptions,
} from '../../dashboard/index.ts'
import { isHoldfastError, type Locks } from '../../index.ts'
import { type Jobs, openJobs } from '../../jobs/index.ts'
import type { ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { interruption } from '../interruption.ts'
import { openLocks } from '../open-locks.ts'
import { type Secret, secretOf } from '../secret.ts'
import { placeOf } from '../store-option.ts'
import { print } from '../terminal.ts'
import { json, plain } from '../text.ts'
import { expected, UsageError } from '../usage-error.ts'
import { DASHBOARD_TOKEN } from './command.ts'
import { storeIdentity } from './store-identity.ts'

export async function serveDashboard(given: ParsedArguments): Promise<number> {
  given.refuseWords()
  const address = listenAddressOf(given)
  const token = tokenFor(given, address)
  const recorded = recordIn(given)
  const { url } = await placeOf(given)
  const record = typeof recorded === 'object' ? { ...recorded, store: storeIdentity(url) } : recorded
  const scheme = (/^[a-z+]+/i.exec(url)?.[0] ?? '').toLowerCase()
  await using locks = await openLocks(url, { readOnly: !given.flag('allow-evict') })
  await using jobs = /^postgres(ql)?$/.test(scheme) ? await jobsIn(url) : undefined
  const allowJobChanges = given.flag('allow-job-changes')
  if (allowJobChanges && jobs === undefined) {
    throw new UsageError(
      'Expected --allow-job-changes with a PostgreSQL store that has the tables of jobs, got a store without them.',
    )
  }
  const handler = dashboardOf(locks, {
    token: token?.text,
    allowEvict: given.flag('allow-evict'),
    prefix: given.text('prefix'),
    record,
    title: given.text('title') ?? `Locks in ${scheme}`,
    jobs,
    allowJobChanges,
  })
  const server = createServer(handler)
  try {
    const port = await listen(server, address)
    // The token is shown in a terminal only: a journal or a file keeps it, and others may read that.
    const pageUrl = pageUrlOf({ ...address, port }, process.stdout.isTTY ? token?.text : undefined)
    if (given.flag('json')) print(json({ url: pageUrl }))
    else for (const line of opening(pageUrl, token)) print(line)
    await once(interruption(), 'abort')
  } finally {
    await handler.close()
    server.close()
    server.closeAllConnections()
  }
  return EXIT.ok
}

/** The library names its own options, and this command has other names for them. */
function dashboardOf(locks: Locks, options: DashboardOptions): Dashboard {
  try {
    return createDashboard(locks, options)
  } catch (error) {
    if (!isHoldfastError(error, 'invalid-argument')) throw error
    throw new UsageError(error.message.replace('`record.file`', '--record-file'), { cause: error })
  }
}

function recordIn(given: ParsedArguments): boolean | RecordOptions {
  const keep = given.duration('record-keep', { leastMs: 60_000 })
  const file = given.text('record-file')
  if (file !== undefined && !existsSync(dirname(file)))
    throw expected('--record-file', 'in a folder that exists', file)
  return keep === undefined && file === undefined ? given.flag('record') : { keep, file }
}

/** `undefined` where the tables of jobs are missing, or the store's user may not read them. */
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

interface ListenAddress {
  readonly host: string
  readonly port: number
}

function listenAddressOf(given: ParsedArguments): ListenAddress {
  const port = given.count('port', { least: 0, most: 65_535 }) ?? 7575
  return { host: given.text('host') ?? '127.0.0.1', port }
}

function tokenFor(given: ParsedArguments, { host }: ListenAddress): DashboardToken | undefined {
  const token = secretOf(given, DASHBOARD_TOKEN)
  if (token !== undefined) return checked(token)
  const ways = '--token-file or HOLDFAST_DASHBOARD_TOKEN'
  if (!isLoopback(host)) {
    throw new UsageError(
      `Expected a token (${ways}) where --host is beyond this machine, got none for ${JSON.stringify(host)}.`,
    )
  }
  // Without a token, every user of this machine may look, but change nothing.
  const right = ['allow-evict', 'allow-job-changes'].find((name) => given.flag(name))
  if (right === undefined) return undefined
  if (process.stdout.isTTY) return { text: randomBytes(18).toString('base64url'), source: undefined }
  throw new UsageError(
    `Expected a token (${ways}) with --${right} where standard output is no terminal, got none: one that is made here could be shown to nobody.`,
  )
}

/** Before the store is opened, as every option. The message does not quote the token, which may be nearly the right one. */
function checked(token: Secret): Secret {
  if (/^[!-~]{16,}$/.test(token.text)) return token
  throw new UsageError(
    `Expected the token of ${plain(token.source)} to be at least 16 characters of ASCII without spaces, got something else.`,
  )
}

interface DashboardToken extends Pick<Secret, 'text'> {
  /** `undefined` where this command generated the token. */
  readonly source: string | undefined
}

function opening(pageUrl: string, token: DashboardToken | undefined): readonly string[] {
  const isAsked = token?.source !== undefined && !process.stdout.isTTY
  return [
    pageUrl,
    ...(isAsked ? [`It asks for the token of ${plain(token.source)}.`] : []),
    'Ctrl-C ends it.',
  ]
}

async function listen(server: Server, { host, port }: ListenAddress): Promise<number> {
  try {
    server.listen(port, host)
    await once(server, 'listening')
    return (server.address() as AddressInfo).port
  } catch (error) {
    const { code = '', syscall } = error as NodeJS.ErrnoException
    // Every other error is a mistake of this program.
    if (syscall === undefined) throw error
    const sentence = REFUSALS[code] ?? `cannot be listened at (${code})`
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
  EAI_AGAIN: 'is not known by name, as no name server answers',
}

function pageUrlOf({ host, port }: ListenAddress, token: string | undefined): string {
  const isEvery = host === '0.0.0.0' || host === '::'
  const name = isEvery ? hostname() : host.includes(':') ? `[${host}]` : host
  return `http://${name}:${port}/${token === undefined ? '' : `?token=${encodeURIComponent(token)}`}`
}
