import { expect, test } from 'vitest'
import { type IncomingRequest, parsedBodyOf } from '../../src/http/idempotent-request.ts'

function requestWith(type: string, body: unknown): IncomingRequest {
  const headers = { 'content-type': type, 'content-length': '10' }
  return { method: 'POST', url: '/', headers, body } as IncomingRequest
}

test.each<[string, unknown]>([
  ['application/json', {}],
  ['application/problem+json; charset=utf-8', {}],
  ['application/x-www-form-urlencoded', { amount: '5' }],
  ['text/plain', 'amount=5'],
  ['multipart/form-data; boundary=x', Buffer.from('--x--')],
])('a body of %s that was parsed is compared', (type, body) => {
  expect(parsedBodyOf(requestWith(type, body))).toBe(body)
})

test.each(['text/plain', 'application/xml', 'application/x-www-form-urlencoded', ''])(
  'the empty object that Express 4 leaves for a body of type “%s” is no parsed body',
  (type) => {
    expect(() => parsedBodyOf(requestWith(type, {}))).toThrow('Expected a parsed body in `request.body`')
  },
)

test.each([{}, { amount: '5' }])(
  'the fields %o beside files that were uploaded are no whole body',
  (body) => {
    const request = requestWith('multipart/form-data; boundary=x', body)
    expect(() => parsedBodyOf(request)).toThrow('Expected `payload` for a multipart body')
  },
)

test.each<[string, string]>([
  ['text/plain', 'Expected a parsed body in `request.body`'],
  ['multipart/form-data; boundary=x', 'Expected `payload` for a multipart body'],
])('over HTTP/2 a body of %s that does not say its length is a body, too', (type, message) => {
  const headers = { ':method': 'POST', 'content-type': type }
  expect(() => parsedBodyOf({ method: 'POST', url: '/', headers } as IncomingRequest)).toThrow(message)
  expect(parsedBodyOf({ method: 'POST', url: '/', headers: { ':method': 'POST' } } as IncomingRequest)).toBe(
    undefined,
  )
})
