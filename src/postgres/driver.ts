import type { SqlRow } from './executor.ts'

// Where the drivers use more of a client package than it documents, because there is no documented way:
//
//   pg           pool.Client                 the class of the pool's clients, from the user's own copy of the package
//   pg           client.connectionParameters what the connection string, the environment and the defaults come to
//   pg           client.processID            the backend that was announced: another one answers behind a pooler
//   postgres.js  the option `onnotify`       messages on our own connection: `sql.listen` opens one of its own, for ever
//   postgres.js  host and port of a socket   the name that the certificate has to have
//
// test/postgres/connections.test.ts and tls.test.ts fail when one of them goes.

/** The driver of a client package. It opens one connection at a time. Each package has a file that implements it. */
export interface PostgresDriver {
  /** Rejects with the package's own error. */
  open(start: SessionStart): Promise<DriverSession>
}

export interface SessionStart {
  readonly applicationName: string
  /** Settings of the session, sent with its first packet. A pooler may refuse any. */
  readonly settings: Readonly<Record<string, string>>
  /** Ends the attempt to connect. */
  readonly signal: AbortSignal
}

/** One connection. It never reconnects. */
export interface DriverSession {
  /** The backend's process id in the first packets. A pooler announces an id of its own, or none. */
  readonly announcedPid: number | undefined
  /** Resolves with the reason once the connection is gone, whoever ended it. Never rejects. */
  readonly closed: Promise<unknown>
  /** `prepared`: the server keeps the parsed statement under a name. A text without parameters may have several statements. */
  query(
    text: string,
    parameters: readonly (string | null)[],
    options: { readonly prepared: boolean },
  ): Promise<readonly SqlRow[]>
  onMessage(listener: (channel: string, payload: string) => void): void
  /** Whether the connection alone keeps the process alive. Default: it does. */
  keepProcess(keeps: boolean): void
  /** Closes at once. Statements without an answer yet reject. Repeatable. */
  close(): void
}

/** The `options` of a start-up packet, if there are any. The user's own come first, because the last one wins. */
export function startOptions(
  own: unknown,
  settings: Readonly<Record<string, string>>,
): { readonly options?: string } {
  const parts = Object.entries(settings).map(
    ([name, value]) => `-c ${name}=${value.replace(/[\\ ]/g, '\\$&')}`,
  )
  if (typeof own === 'string' && own !== '') parts.unshift(own)
  return parts.length === 0 ? {} : { options: parts.join(' ') }
}

/** After this long without traffic TCP looks whether the peer is still there, and not only after two hours. */
export const KEEP_ALIVE_MS = 10_000
