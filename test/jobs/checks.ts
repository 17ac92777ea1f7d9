import type { PostgresServer } from '../servers/postgres-server.ts'

/**
 * What holds for every row of these tables. The library's own tables have no check constraints, because these cost each statement
 * that writes a row several microseconds. So every test proves the functions instead.
 */
const CHECKS: Readonly<Record<string, readonly string[]>> = {
  jobs: [
    "state in ('pending', 'ready', 'blocked', 'delayed', 'running')",
    "state = 'pending' or (due_at is not null) = (state in ('delayed', 'running'))",
    "if_child_fails in ('cancel', 'run', 'wait') and (if_child_fails is null) = (children is null)",
  ],
  ended_jobs: ["state in ('completed', 'dead', 'cancelled', 'superseded')"],
}

/** From now on, each of these tables that is created in the server's database gets its checks at once, whoever creates it. */
export async function addChecks(server: PostgresServer): Promise<void> {
  const changes = Object.entries(CHECKS).map(
    ([table, checks]) => `
      if made.object_identity ~ '\\.${table}$' then
        execute 'alter table ' || made.object_identity || $change$ ${checks.map((check) => `add check (${check})`).join(', ')} $change$;
      end if;`,
  )
  await server.sql(`
    create function public.add_checks() returns event_trigger language plpgsql as $function$
    declare
      made record;
    begin
      for made in select object_identity from pg_event_trigger_ddl_commands() where command_tag = 'CREATE TABLE' loop
        ${changes.join('')}
      end loop;
    end
    $function$;
    create event trigger add_checks on ddl_command_end when tag in ('CREATE TABLE') execute function public.add_checks()`)
}
