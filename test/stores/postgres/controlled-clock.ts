import { Client } from 'pg'

/**
 * Lets the store in a database see a time that the test sets. It replaces the function that asks the server for the
 * time, and changes nothing else.
 */
export async function controlClock(
  url: string,
): Promise<{ setTime(ms: number): Promise<void>; close(): Promise<void> }> {
  const client = new Client(url)
  // A failed test may end the server before the client.
  client.on('error', () => {})
  await client.connect()
  const database = new URL(url).pathname.slice(1)
  await client.query(`
    create schema clock;
    create unlogged table clock.now (ms double precision);
    insert into clock.now values (0);
    create or replace function holdfast.lock_clock() returns bigint language sql
      as 'select (ms * 1000)::bigint from clock.now';
    alter database ${database} set synchronous_commit = off;
  `)
  return {
    async setTime(ms) {
      await client.query('update clock.now set ms = $1', [ms])
    },
    close: () => client.end(),
  }
}
