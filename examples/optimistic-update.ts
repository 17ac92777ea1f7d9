// Ten customers book seats of one flight at once. No lock: whoever comes too late reads again, and no seat is sold twice.
// Needs: PostgreSQL at POSTGRES_URL; pg.
// Run: npx tsx examples/optimistic-update.ts
import { updateRow } from 'holdfast/optimistic'
import pg from 'pg'

interface Flight {
  readonly id: number
  readonly free: number
  readonly version: number
}

const pool = new pg.Pool({ connectionString: process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres' })
await pool.query(`
  DROP TABLE IF EXISTS flight;
  CREATE TABLE flight (id int PRIMARY KEY, free int NOT NULL, version int NOT NULL DEFAULT 1);
  INSERT INTO flight (id, free) VALUES (7, 5)`)

let looks = 0
async function book(customer: number): Promise<boolean> {
  const flight = await updateRow<Flight>(pool, {
    table: 'flight',
    id: { id: 7 },
    change({ free }) {
      looks += 1
      return free === 0 ? null : { free: free - 1 }
    },
  })
  console.log(`customer ${customer}:`, flight === null ? 'sold out' : `booked, ${flight.free} left`)
  return flight !== null
}

const booked = await Promise.all(Array.from({ length: 10 }, (_, index) => book(index + 1)))
console.log(`the row was looked at ${looks} times`)
if (booked.filter(Boolean).length !== 5) throw new Error('five seats, and not five bookings')
await pool.end()
