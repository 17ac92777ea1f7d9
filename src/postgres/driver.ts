import type { SqlRow } from './executor.ts'

/** What is asked of a client package: one connection at a time. One file per package fulfils it. */
export interface PostgresDriver {
  /** Rejects with the package's own error. */
  open(start: SessionStart): Promise<Session>
}

export interface SessionStart {
  readonly applicationName: string
  /** Settings of the session, sent with its first packet. A pooler may refuse any. */
  readonly settings: Readonly<Record<string, string>>
  /** Gives up connecting. */
  readonly signal: AbortSignal
}

/** One connection. It is never made again: who needs another one opens it. */
export interface Session {
  /** The backend's process id as the first packets said it. A pooler says an id of its own, or none. */
  readonly announcedPid: number | undefined
  /** Settles with the reason once the connection is gone, whoever ended it. Never rejects. */
  readonly closed: Promise<unknown>
  /** `prepared`: the server keeps the parsed statement under a name. Without parameters there may be several statements. */
  query(
    text: string,
    parameters: readonly (string | null)[],
    options: { readonly prepared: boolean },
  ): Promise<readonly SqlRow[]>
  onMessage(listener: (channel: string, payload: string) => void): void
  /** Whether the connection alone keeps the process alive. It does until it is told otherwise. */
  keepProcess(keeps: boolean): void
  /** At once; what is not answered yet is rejected. Repeatable. */
  close(): void
}

/** The `options` of a start-up packet, if there are any: the user's own first, since the last one wins. */
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

/** A peer that vanished without a word is noticed by TCP after this long without traffic, and not after two hours. */
export const KEEP_ALIVE_MS = 10_000
