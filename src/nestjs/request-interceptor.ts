import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common'
import { finalize, tap } from 'rxjs'
import { isHoldfastError } from '../errors.ts'
import type { FrameworkReply, HttpErrorFields, OutgoingResponse } from '../http/index.ts'
import { runForRequest } from './running.ts'

/**
 * Of all that runs for a request, this alone knows its response. The headers of an error are set here, where the request has failed: a
 * method may also have handled the error of another one.
 */
export const requestInterceptor: NestInterceptor = {
  intercept(context: ExecutionContext, next: CallHandler) {
    const response = responseOf(context)
    if (response === undefined) return next.handle()
    // NestJS runs the handler in the async context of this call.
    const [answer, end] = runForRequest(response, () => next.handle())
    const isHttp = context.getType() === 'http'
    return answer.pipe(
      tap({ error: (error: unknown) => isHttp && setHeaders(response, error) }),
      finalize(end),
    )
  },
}

/** The response of Node.js; `undefined` where there is none, as in a microservice. */
function responseOf(context: ExecutionContext): OutgoingResponse | undefined {
  const candidates: unknown[] = []
  const type = context.getType<string>()
  if (type === 'http') candidates.push(context.switchToHttp().getResponse())
  if (type === 'graphql') {
    // What the driver puts there depends on the server below it, and on the options of the application.
    const { res, req, reply } = context.getArgByIndex<GraphqlContext | undefined>(2) ?? {}
    candidates.push(res, req?.res, reply)
  }
  return candidates
    .map((candidate) => (candidate as Partial<FrameworkReply> | undefined)?.raw ?? candidate)
    .find(isOutgoing)
}

interface GraphqlContext {
  readonly res?: unknown
  readonly req?: { readonly res?: unknown }
  readonly reply?: unknown
}

/** Libraries also call handlers as if they were those of HTTP requests, with arguments of their own. */
function isOutgoing(value: unknown): value is OutgoingResponse {
  const response = value as Partial<OutgoingResponse> | null | undefined
  return typeof response?.writableEnded === 'boolean' && typeof response.once === 'function'
}

/**
 * NestJS takes the status and the message from an error, and leaves out its headers. So this sets
 * them, but only those of Holdfast's errors.
 */
function setHeaders(response: object, error: unknown): void {
  if (!isHoldfastError(error)) return
  const { headers } = error as { readonly headers?: HttpErrorFields['headers'] }
  const writable = response as { headersSent?: boolean; setHeader?(name: string, value: string): void }
  if (headers === undefined || writable.headersSent !== false) return
  for (const [name, value] of Object.entries(headers)) writable.setHeader?.(name, value)
}
