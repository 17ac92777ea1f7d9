-- The guard's table and function, version 1.
-- Inputs: none.
-- Result: none.
create table "{schema}".guards (
  resource text collate "C" primary key,
  fence bigint not null,
  raised_at timestamptz not null default now()
) with (fillfactor = 80);

comment on table "{schema}".guards is
  'holdfast: the highest fence that each resource has seen. A row that is deleted lets an older holder in again.';

-- Locks the row of the resource until the transaction ends. If the row has a later fence, raises ZF001: that aborts the
-- transaction, whatever the caller does with the error. Returns the id of the transaction, so that the caller can check
-- that its next statement is in the same transaction.
create function "{schema}".guard(guarded text, claimed bigint) returns text language plpgsql as $function$
declare
  seen bigint;
begin
  loop
    -- Each command of this function is a statement of its own, so in READ COMMITTED it sees what was committed while it
    -- waited.
    select g.fence into seen from "{schema}".guards g where g.resource = guarded for update;
    exit when found;
    insert into "{schema}".guards (resource, fence) values (guarded, claimed) on conflict do nothing;
    if found then
      return pg_current_xact_id();
    end if;
  end loop;
  if claimed < seen then
    raise exception using
      errcode = 'ZF001',
      message = format('fence %s is stale: resource %L has seen %s', claimed, guarded, seen);
  end if;
  -- Also if the same holder calls again. If this only locked the row, a later holder with a snapshot from before would wait, and then
  -- not see what this transaction has written. The update makes PostgreSQL refuse its snapshot (40001).
  update "{schema}".guards g set fence = claimed, raised_at = case when claimed > seen then now() else g.raised_at end
  where g.resource = guarded;
  return pg_current_xact_id();
end
$function$;
