import type { Deadline } from './deadline.ts'

/** A message from `holdfast run` to its guardian. */
export type GuardianOrder =
  | {
      readonly tag: 'launch'
      readonly command: CommandLine
      readonly deadline: Deadline
      readonly graceMs: number
    }
  | { readonly tag: 'extend'; readonly deadline: Deadline }

/** A message from the guardian to `holdfast run`. */
export type GuardianReport =
  | { readonly tag: 'ready' }
  | { readonly tag: 'launched'; readonly pid: number }
  /** The operating system did not start the command: ENOENT, EACCES, … */
  | { readonly tag: 'not-launched'; readonly errno: string }
  /** The deadline had passed before the launch order arrived. */
  | { readonly tag: 'too-late' }
  /** The group got SIGTERM, because the deadline is near. */
  | { readonly tag: 'ending' }
  | { readonly tag: 'exited'; readonly code: number }
  | { readonly tag: 'signalled'; readonly signal: NodeJS.Signals }
  /** The command is to end, and processes of it run under another user (sudo), whom this one may not kill. */
  | { readonly tag: 'out-of-reach' }

export interface CommandLine {
  readonly file: string
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  /** The standard input of `holdfast run`, or nothing. */
  readonly input: 'inherit' | 'ignore'
}
