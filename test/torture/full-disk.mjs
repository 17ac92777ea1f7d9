// Loaded into every process of a torture run by NODE_OPTIONS=--import. The command cannot write down its first fault.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const { writeSync } = fs

fs.writeSync = (file, text, ...more) => {
  if (String(text).includes('"tag":"fault"'))
    throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  return writeSync(file, text, ...more)
}
syncBuiltinESMExports()
