// Holds a key, waits for it a second time in vain, listens, and closes nothing: the process has to end by itself.
import pg from 'pg'
import postgres from 'postgres'
import { createLocks } from '../../../../src/index.ts'
import { postgresStore } from '../../../../src/stores/postgres/index.ts'

const [url = '', name, key = ''] = process.argv.slice(2)
const client = name === 'pg' ? new pg.Pool({ connectionString: url }) : postgres(url)
const locks = createLocks(postgresStore(client))
await locks.acquire(key, { ttl: '1h' })
const other = createLocks(postgresStore(client))
await other.acquire(key, { wait: '5s' }).catch((error: { code?: string }) => console.log(error.code))
