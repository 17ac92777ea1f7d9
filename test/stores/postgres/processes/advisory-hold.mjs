// Holds a key; with "leave" it does nothing more, and with "stay" something else keeps it.
import pg from 'pg'
import { advisorySession } from '../../../../src/stores/postgres/index.ts'

const [, , url = '', mode] = process.argv
const lease = await advisorySession(new pg.Pool({ connectionString: url }), 'a')
if (mode === 'stay') setInterval(() => lease.assertHeld(), 1000)
console.log(lease.state)
