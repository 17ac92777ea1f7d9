/** The command line is not what the command takes. Shown as one sentence, without a stack. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** The words of every such sentence. `got` is shown as it was typed. */
export function expected(what: string, shape: string, got: string | undefined): UsageError {
  return new UsageError(`Expected ${what} to be ${shape}, got ${got === undefined ? 'nothing' : quote(got)}.`)
}

function quote(typed: string): string {
  return JSON.stringify(typed.length > 60 ? `${typed.slice(0, 60)}…` : typed)
}
