// Preloaded into a process: what is named in HIDDEN_PACKAGES is not installed there.
import { register } from 'node:module'

const loader = `
const hidden = ${JSON.stringify((process.env['HIDDEN_PACKAGES'] ?? '').split(','))}
export async function resolve(specifier, context, next) {
  if (!hidden.includes(specifier)) return next(specifier, context)
  throw Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' })
}`
register(`data:text/javascript,${encodeURIComponent(loader)}`)
