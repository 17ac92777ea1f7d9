import { expected, parseCount } from '../base/arguments.ts'
import {
  HoldfastError,
  type HoldfastErrorCode,
  type IdempotencyKeyError,
  InvalidArgumentError,
  isHoldfastError,
  type StartTimeoutError,
  withoutHolder,
} from '../errors.ts'

/** The fields that Express, Fastify, Koa and NestJS read from an error, as the `http-errors` package has them. */
export interface HttpErrorFields {
  /** The status of the answer, as Fastify and NestJS read it. */
  readonly statusCode: number
  /** The same, as Express and Koa read it. */
  readonly status: number
  /** Whether the client may read the message, which names the key. */
  readonly expose: boolean
  /** `retry-after`, in seconds, where it helps to come back. Empty otherwise. */
  readonly headers: Readonly<Record<string, string>>
}

/** Other statuses than the usual ones, from 400 to 599, by the code of the error: `{ 'acquire-timeout': 423 }`. */
export type StatusCodes = Readonly<Partial<Record<HoldfastErrorCode, number>>>

/**
 * Returns the same error. If it is one of Holdfast's that a client can do something about, it gets a `statusCode`,
 * `headers` and the other fields that the error handlers of Express, Fastify, Koa and NestJS use. It leaves every
 * other error as it is, and also an error that has a status.
 *
 * Clients read the message. So the message of an `acquire-timeout` loses the name of the holder, which stays in `error.holder`.
 *
 * | code | status | retry-after |
 * |---|---|---|
 * | `acquire-timeout`, `conflict`, `stale-fence` | 409 | |
 * | `start-timeout` of a limit or a task queue | 429 | when the window ends, where a rate limit refused |
 * | `store-unavailable`, `closed`, `queue-full` | 503 | 1 s |
 * | `idempotency-key` | 400, 409, 410 or 422, by its `reason` | 1 s, while the first request is running |
 * | `invalid-argument` of a text that cannot be a key | 400 | |
 * | any other | the framework's own: 500 | |
 *
 * ```ts
 * import { asHttpError } from 'holdfast/http'
 *
 * export function onError(error: unknown, _request: unknown, _response: unknown, next: (error: unknown) => void): void {
 *   next(asHttpError(error))
 * }
 * ```
 *
 * @throws {InvalidArgumentError} when `statusCodes` is not what it should be.
 */
export function asHttpError<E>(error: E, statusCodes: StatusCodes = {}): E {
  checkStatusCodes(statusCodes)
  return withStatus(error, statusCodes)
}

export function withStatus<E>(error: E, statusCodes: StatusCodes): E {
  if (!isHoldfastError(error) || 'statusCode' in error || 'status' in error) return error
  if (!Object.isExtensible(error)) return error
  const known = fieldsOf(error, statusCodes)
  if (known === undefined) return error
  // Frameworks send the message to the client.
  if (isHoldfastError(error, 'acquire-timeout')) {
    error.message = withoutHolder(error)
    // Nor does its JSON tell a client about other processes.
    Object.defineProperty(error, 'holder', { enumerable: false })
  }
  return Object.assign(error, known)
}

export function checkStatusCodes(statusCodes: unknown): asserts statusCodes is StatusCodes {
  if (typeof statusCodes !== 'object' || statusCodes === null) {
    throw expected('statusCodes', "an object such as { 'acquire-timeout': 423 }", statusCodes)
  }
  for (const [code, status] of Object.entries(statusCodes)) {
    if (!isHoldfastError(new HoldfastError(code as HoldfastErrorCode, ''))) {
      throw new InvalidArgumentError(
        `Expected \`statusCodes\` to have codes of Holdfast's errors, got \`${code}\`.`,
      )
    }
    parseCount(`statusCodes['${code}']`, status, { least: 400, most: 599 })
  }
}

function fieldsOf(error: HoldfastError, statusCodes: StatusCodes): HttpErrorFields | undefined {
  // Such a text usually came with the request; any other wrong argument is a mistake of the program.
  const isWrongKey = (error as Partial<InvalidArgumentError>).argument === 'key'
  const status = statusCodes[error.code] ?? (isWrongKey ? 400 : usualStatus(error))
  if (status === undefined) return undefined
  const { retryAfterMs } = error as Partial<StartTimeoutError>
  const isSoonOver = status === 503 || (error as Partial<IdempotencyKeyError>).reason === 'running'
  return fields(status, retryAfterMs ?? (isSoonOver ? 1000 : undefined))
}

function fields(status: number, retryAfterMs: number | undefined): HttpErrorFields {
  const headers: Record<string, string> =
    retryAfterMs === undefined ? {} : { 'retry-after': String(Math.ceil(retryAfterMs / 1000)) }
  return { statusCode: status, status, expose: status < 500, headers }
}

function usualStatus(error: HoldfastError): number | undefined {
  return isHoldfastError(error, 'idempotency-key') ? STATUS_OF_REASON[error.reason] : USUAL[error.code]
}

/** The first four as in the draft of the IETF. The last one is a status that no client answers by trying again. */
const STATUS_OF_REASON: Readonly<Record<IdempotencyKeyError['reason'], number>> = {
  missing: 400,
  malformed: 400,
  'other-request': 422,
  running: 409,
  'answer-not-kept': 410,
}

const USUAL: StatusCodes = {
  'acquire-timeout': 409,
  'start-timeout': 429,
  conflict: 409,
  'stale-fence': 409,
  'store-unavailable': 503,
  closed: 503,
  'queue-full': 503,
}
