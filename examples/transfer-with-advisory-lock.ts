// Money moves between two accounts: the keys are locked until the very transaction that moves it ends.
// Needs: PostgreSQL at POSTGRES_URL; pg.
// Run: npx tsx examples/transfer-with-advisory-lock.ts
import { isHoldfastError } from 'holdfast'
import { advisoryXact } from 'holdfast/postgres'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres' })
await pool.query(`
  DROP TABLE IF EXISTS advisory_account;
  CREATE TABLE advisory_account (id text PRIMARY KEY, cents bigint NOT NULL);
  INSERT INTO advisory_account VALUES ('alice', 1000), ('bob', 1000)`)

async function transfer(from: string, to: string, cents: number): Promise<void> {
  const tx = await pool.connect()
  try {
    await tx.query('BEGIN')
    // In one order everywhere, so that two transfers in opposite directions cannot wait for one another.
    for (const id of [from, to].sort()) await advisoryXact(tx, `account:${id}`, { wait: '5s' })
    const { rows } = await tx.query('SELECT cents FROM advisory_account WHERE id = $1', [from])
    // Read after the lock, so that nobody can spend it in between.
    if (Number(rows[0]?.cents) < cents) throw new Error(`${from} has too little money`)
    await tx.query('UPDATE advisory_account SET cents = cents - $2 WHERE id = $1', [from, cents])
    await tx.query('UPDATE advisory_account SET cents = cents + $2 WHERE id = $1', [to, cents])
    await tx.query('COMMIT')
  } catch (error) {
    await tx.query('ROLLBACK')
    throw error
  } finally {
    tx.release()
  }
}

// 40 transfers at once, more than alice can pay.
const outcomes = await Promise.allSettled(
  Array.from({ length: 40 }, (_, turn) =>
    turn % 4 === 0 ? transfer('bob', 'alice', 100) : transfer('alice', 'bob', 100),
  ),
)
const { rows } = await pool.query('SELECT id, cents::int FROM advisory_account ORDER BY id')
const total = rows.reduce((sum: number, { cents }: { cents: number }) => sum + cents, 0)
console.log(rows, outcomes.filter(({ status }) => status === 'rejected').length, 'transfers were refused')
if (total !== 2000 || rows.some(({ cents }: { cents: number }) => cents < 0))
  throw new Error('money was lost or made')

// Outside of a transaction the lock would be gone at once, so that is an error and not a surprise.
const misuse: unknown = await advisoryXact(pool, 'account:alice').catch((error: unknown) => error)
if (!isHoldfastError(misuse, 'invalid-argument')) throw new Error('expected a refusal')
console.log(misuse.message)

await pool.query('DROP TABLE advisory_account')
await pool.end()
