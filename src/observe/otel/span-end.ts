import { type Span, SpanStatusCode } from '@opentelemetry/api'
import { fieldOf } from '../../base/thrown.ts'
import { isHoldfastError } from '../../index.ts'

/** Ends a span with its outcome. An error is its status. */
export function endSpan(span: Span, outcome: string, error: unknown): void {
  span.setAttribute('holdfast.outcome', outcome)
  if (error !== undefined) {
    const message = fieldOf(error, 'message')
    span.setAttribute('error.type', typeOf(error) ?? 'unknown')
    span.setStatus({ code: SpanStatusCode.ERROR, message: typeof message === 'string' ? message : outcome })
  }
  span.end()
}

/** The code of Holdfast's errors, which stays the same in every version; the name of other errors. */
export function typeOf(error: unknown): string | undefined {
  if (typeof error === 'string') return error
  if (isHoldfastError(error)) return error.code
  const name = fieldOf(error, 'name')
  return typeof name === 'string' ? name : undefined
}
