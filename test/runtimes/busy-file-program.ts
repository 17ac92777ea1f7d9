// Opens a lock file while another connection has its write lock, and then a file that is no database: busy-file-program.ts FOLDER
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect } from '../../src/index.ts'
import { openDatabase } from '../../src/stores/sqlite/sqlite-engine.ts'

const [folder = ''] = process.argv.slice(2)
const path = join(folder, 'locks.db')
await (await connect(`sqlite:${path}`)).close()

const other = openDatabase(path, undefined)
other.exec('BEGIN IMMEDIATE')
const opening = connect(`sqlite:${path}`)
// The file stays locked until the first attempt has failed.
await new Promise((resolve) => setImmediate(resolve))
other.exec('ROLLBACK')
other.close()
const locks = await opening
const { fence } = await locks.withLock('key', async (lease) => lease)
await locks.close()

const text = join(folder, 'notes.txt')
writeFileSync(text, 'A text of any kind. '.repeat(100))
const refusal = await connect(`sqlite:${text}`).then(String, (error: Error) => error.message)
console.log(JSON.stringify({ held: fence > 0n, refusal: refusal.replace(folder, '') }))
