// Money moves under a lock in Redis. A holder that was away for too long comes back late, and the accounts refuse it.
// Needs: Redis at REDIS_URL, PostgreSQL at POSTGRES_URL; ioredis, postgres.
// Run: npx tsx examples/transfer-with-fence.ts
import { createLocks, isHoldfastError, type Lease } from 'holdfast'
import { guard, migrateGuard } from 'holdfast/guard'
import { redisStore } from 'holdfast/redis'
import { Redis } from 'ioredis'
import postgres from 'postgres'

const redis = new Redis(process.env['REDIS_URL'] ?? 'redis://localhost:6379')
const sql = postgres(process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres', { onnotice: () => {} })
const locks = createLocks(redisStore(redis))
await migrateGuard(sql)
await sql`drop table if exists fenced_account`
await sql`create table fenced_account (id text primary key, cents int not null check (cents >= 0))`
await sql`insert into fenced_account values ('alice', 1000), ('bob', 1000)`

async function transfer(cents: number, lease: Lease): Promise<void> {
  await sql.begin(async (tx) => {
    // First, so that everything after it, reads included, is done as the newest holder.
    await guard(tx, { resource: 'accounts', fence: lease })
    await tx`update fenced_account set cents = cents - ${cents} where id = 'alice'`
    await tx`update fenced_account set cents = cents + ${cents} where id = 'bob'`
  })
}

// What a pause looks like from outside: somebody else is given the lock, and the old holder knows nothing of it yet.
const old = await locks.acquire('accounts')
await locks.evict('accounts', old.id, { reason: 'it seemed dead' })
await locks.withLock('accounts', (lease) => transfer(300, lease))
console.log('the new holder moved 300')

const late = await transfer(500, old).catch((error: unknown) => error)
if (!isHoldfastError(late, 'stale-fence')) throw new Error('the late transfer should have been refused')
console.log('the old holder was refused:', late.message)

const accounts = await sql`select id, cents from fenced_account order by id`
console.log(accounts.map(({ id, cents }) => `${id} has ${cents}`).join(', '))
if (accounts[0]?.['cents'] !== 700) throw new Error('the late transfer counted')
await locks.close()
await sql.end()
redis.disconnect()
