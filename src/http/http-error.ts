import { type HoldfastError, type HoldfastErrorCode, isHoldfastError } from '../errors.ts'

/** What Express, Fastify and NestJS look for on an error. */
export interface HttpErrorFields {
  readonly statusCode: number
  /** `retry-after`, in seconds, where it helps to come back. Empty otherwise. */
  readonly headers: Readonly<Record<string, string>>
}

/** Other statuses than the usual ones, from 400 to 599, by the code of the error: `{ 'acquire-timeout': 423 }`. */
export type StatusCodes = Readonly<Partial<Record<HoldfastErrorCode, number>>>

/**
 * The same error, and if it is one of Holdfast's that a client can do something about, then with the `statusCode` and the
 * `headers` that the error handlers of Express, Fastify and NestJS use. Any other error is left as it is.
 *
 * | code | status | retry-after |
 * |---|---|---|
 * | `acquire-timeout` | 409; 429 where a rate limit refused | when the window ends |
 * | `conflict`, `stale-fence` | 409 | |
 * | `store-unavailable`, `closed`, `queue-full` | 503 | 1 s |
 * | any other | the framework's own: 500 | |
 *
 * ```ts
 * import { asHttpError } from 'holdfast/http'
 *
 * export function onError(error: unknown, _request: unknown, _response: unknown, next: (error: unknown) => void): void {
 *   next(asHttpError(error))
 * }
 * ```
 */
export function asHttpError<E>(error: E, statusCodes: StatusCodes = {}): E {
  if (!isHoldfastError(error) || 'statusCode' in error) return error
  const fields = fieldsOf(error, statusCodes)
  return fields === undefined ? error : Object.assign(error, fields)
}

function fieldsOf(error: HoldfastError, statusCodes: StatusCodes): HttpErrorFields | undefined {
  const { retryAfterMs } = error as { readonly retryAfterMs?: number | undefined }
  if (retryAfterMs !== undefined) return { statusCode: 429, headers: retryAfter(retryAfterMs) }
  const statusCode = statusCodes[error.code] ?? USUAL[error.code]
  if (statusCode === undefined) return undefined
  return { statusCode, headers: statusCode === 503 ? retryAfter(1000) : {} }
}

function retryAfter(durationMs: number): Readonly<Record<string, string>> {
  return { 'retry-after': String(Math.ceil(durationMs / 1000)) }
}

const USUAL: StatusCodes = {
  'acquire-timeout': 409,
  conflict: 409,
  'stale-fence': 409,
  'store-unavailable': 503,
  closed: 503,
  'queue-full': 503,
}
