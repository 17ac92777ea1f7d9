/** The command line is invalid. Shown as one sentence, without a stack. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** A `UsageError` in the words that all of them have. `got` is quoted as it was typed. */
export function expected(what: string, shape: string, got: string | undefined): UsageError {
  return new UsageError(`Expected ${what} to be ${shape}, got ${got === undefined ? 'nothing' : quote(got)}.`)
}

function quote(typed: string): string {
  return JSON.stringify(typed.length > 60 ? `${typed.slice(0, 60)}…` : typed)
}
