import { Client } from 'pg'

/**
 * Lets the functions of the store in a database see a time that the test sets: the function that asks the server is another
 * one, and everything else is as it is. `inspect` is a statement and no function, so it sees a `clock_timestamp` of the
 * test's schema, which comes first on the path.
 */
export async function controlClock(
  url: string,
): Promise<{ setTime(ms: number): Promise<void>; close(): Promise<void> }> {
  const client = new Client(url)
  // A failed test may end the server first.
  client.on('error', () => {})
  await client.connect()
  const database = new URL(url).pathname.slice(1)
  await client.query(`
    create schema clock;
    create unlogged table clock.now (ms double precision);
    insert into clock.now values (0);
    create function clock.clock_timestamp() returns timestamptz volatile language sql
      as 'select to_timestamp(ms / 1000) from clock.now';
    alter database ${database} set search_path = clock, pg_catalog;
    alter database ${database} set synchronous_commit = off;
  `)
  return {
    async setTime(ms) {
      await client.query('update clock.now set ms = $1', [ms])
    },
    close: () => client.end(),
  }
}
