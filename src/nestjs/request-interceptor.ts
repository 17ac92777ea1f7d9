import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common'
import { tap } from 'rxjs'
import { isHoldfastError } from '../errors.ts'
import type { FrameworkReply, HttpErrorFields, OutgoingResponse } from '../http/index.ts'
import { runForRequest } from './running.ts'

/**
 * Of all that runs for a request, this alone knows its response. The headers of an error are set here, where the request has failed: a
 * method may also have handled the error of another one.
 */
export const requestInterceptor: NestInterceptor = {
  intercept(context: ExecutionContext, next: CallHandler) {
    if (context.getType() !== 'http') return next.handle()
    // With the Fastify adapter it is a reply. NestJS runs the handler in the async context of this call.
    const reply = context.switchToHttp().getResponse<OutgoingResponse | FrameworkReply>()
    const response = 'raw' in reply ? reply.raw : reply
    const answer = runForRequest(response, () => next.handle())
    return answer.pipe(tap({ error: (error: unknown) => setHeaders(response, error) }))
  },
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
