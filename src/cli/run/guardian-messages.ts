import type { Deadline } from './deadline.ts'

/** What `holdfast run` tells its guardian. */
export type GuardianOrder =
  | {
      readonly tag: 'launch'
      readonly command: CommandLine
      readonly deadline: Deadline
      readonly graceMs: number
    }
  | { readonly tag: 'extend'; readonly deadline: Deadline }

/** What the guardian tells back. */
export type GuardianReport =
  | { readonly tag: 'ready' }
  | { readonly tag: 'launched'; readonly pid: number }
  /** The operating system did not start it: ENOENT, EACCES, … */
  | { readonly tag: 'not-launched'; readonly errno: string }
  /** The deadline had passed before the order came. */
  | { readonly tag: 'too-late' }
  /** The group was asked to end, because the deadline is near. */
  | { readonly tag: 'ending' }
  | { readonly tag: 'exited'; readonly code: number }
  | { readonly tag: 'signalled'; readonly signal: NodeJS.Signals }

export interface CommandLine {
  readonly file: string
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  /** Ours, or nothing. */
  readonly input: 'inherit' | 'ignore'
}
