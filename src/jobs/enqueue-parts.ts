import type { JobEntry } from './new-job.ts'
import { MOST_CHARACTERS } from './statements.ts'

/** So that no statement reaches its time limit, and no text is made that holds the event loop. */
const MOST_AT_ONCE = 5000
/** Larger, because one statement takes its keys in order: two lists with the same keys, each in parts, may deadlock. */
const MOST_CHARACTERS_WITH_KEYS = 67_108_864

/** The jobs of each statement, in their order. */
export function partsOf(entries: readonly JobEntry[]): readonly (readonly JobEntry[])[] {
  const hasKeys = entries.some(({ unique_key }) => unique_key !== null)
  const most = hasKeys ? MOST_CHARACTERS_WITH_KEYS : MOST_CHARACTERS
  const parts: JobEntry[][] = []
  let part: JobEntry[] = []
  let characters = 0
  for (const entry of entries) {
    characters += entry.payload.length
    if (part.length === MOST_AT_ONCE || (part.length > 0 && characters > most)) {
      parts.push(part)
      part = []
      characters = entry.payload.length
    }
    part.push(entry)
  }
  return part.length === 0 ? parts : [...parts, part]
}
