import type { Option } from '../arguments.ts'
import { beginningOf } from '../store-option.ts'

/** What a shell can offer as the value of an option. */
export type OptionValues =
  | { readonly tag: 'none' }
  /** Only a person knows: a key, a number, a text. */
  | { readonly tag: 'unknown'; readonly name: string }
  | { readonly tag: 'words'; readonly name: string; readonly words: readonly string[] }
  /** The value goes on behind each of these. */
  | { readonly tag: 'beginnings'; readonly name: string; readonly words: readonly string[] }
  | { readonly tag: 'file'; readonly name: string }

export function valuesOf({ value, choices, schemes }: Option): OptionValues {
  if (value === undefined) return { tag: 'none' }
  if (choices !== undefined) return { tag: 'words', name: value, words: choices }
  if (schemes !== undefined) return { tag: 'beginnings', name: value, words: schemes.map(beginningOf) }
  return value === 'PATH' ? { tag: 'file', name: value } : { tag: 'unknown', name: value }
}

/** `--wait` and `-w`. */
export function namesOf(name: string, { short }: Option): readonly string[] {
  return [`--${name}`, ...(short === undefined ? [] : [`-${short}`])]
}

/** A text as one word of a shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

/** The flags before a command, as the overview of the help has them. */
export const GLOBAL_OPTIONS: readonly string[] = ['--help', '--version']
