// Loaded into every process of a torture run by NODE_OPTIONS=--import. The history of process 1 is full from its start.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const { writeSync } = fs

fs.writeSync = (file, text, ...more) => {
  const written = writeSync(file, text, ...more)
  return /"tag":"start".*"worker":1\b/.test(String(text)) ? 2 ** 24 + 1 : written
}
syncBuiltinESMExports()
