import { type CallHandler, type ExecutionContext, Inject, UseInterceptors } from '@nestjs/common'
import { expected } from '../base/arguments.ts'
import type {
  FrameworkReply,
  IdempotencyMiddleware,
  IdempotencyOptions,
  IncomingRequest,
  OutgoingResponse,
} from '../http/index.ts'
import { MODULE_LOCKS, type ModuleLocks } from './module-locks.ts'

/**
 * Decorator for a method of a controller, or for a controller: a request that has a header `Idempotency-Key` is answered once. A
 * repetition gets the status, the headers and the body of the first answer, and the method does not run. The options are those of
 * `requests.idempotent` of `holdfast/http`.
 *
 * It is an interceptor. So guards have authenticated the request before, and pipes check only a request that is not a
 * repetition. An interceptor that stands above it sees no value of a repetition.
 *
 * ```ts
 * import { Body, Controller, Post } from '@nestjs/common'
 * import type { Request } from 'express'
 * import { Idempotent } from 'holdfast/nestjs'
 *
 * @Controller('payments')
 * export class Payments {
 *   @Post()
 *   @Idempotent({ remember: '24h', required: true, scope: (request: Request) => String(request.headers.authorization) })
 *   async pay(@Body() body: { amount: number }): Promise<{ paid: number }> {
 *     return { paid: body.amount }
 *   }
 * }
 * ```
 */
export function Idempotent<Request extends IncomingRequest>(
  options: IdempotencyOptions<Request>,
): ClassDecorator & MethodDecorator {
  if (typeof options?.scope !== 'function') {
    throw expected('scope', 'a function of the request that returns whose key it is', options?.scope)
  }
  class IdempotencyInterceptor {
    readonly #middleware: IdempotencyMiddleware<Request>

    constructor(locks: ModuleLocks) {
      this.#middleware = locks.idempotent(options)
    }

    async intercept(
      context: ExecutionContext,
      next: CallHandler,
    ): Promise<ReturnType<CallHandler['handle']>> {
      if (context.getType() !== 'http') {
        if (options.required === true)
          throw expected('@Idempotent({ required: true })', 'at HTTP requests', context.getType())
        return next.handle()
      }
      const http = context.switchToHttp()
      const reply = http.getResponse<OutgoingResponse | FrameworkReply>()
      // After a stored answer there is nothing to do. NestJS would answer again, so the promise stays open.
      return new Promise((resolve, reject) => {
        this.#middleware(http.getRequest<Request>(), reply, (error) => {
          if (error === undefined) resolve(next.handle())
          else reject(error)
        })
      })
    }
  }
  Inject(MODULE_LOCKS)(IdempotencyInterceptor, undefined, 0)
  return UseInterceptors(IdempotencyInterceptor)
}
