-- Clears rooms whose processes are gone, when no other process has asked for the key since. Only the size of the tables depends on
-- it. One process sweeps at a time, and never one that would have to wait.
--
-- Result  1 if there may be more (it found p_count rooms, or another call was at one of them), else 0
create function "{schema}".lock_sweep(p_count integer) returns integer language plpgsql set search_path = pg_catalog as $body$
declare
  v_now double precision := "{schema}".lock_clock() / 1000 - 60000;
  v_key text;
  v_found integer := 0;
  v_skipped boolean := false;
  v_left text[];
begin
  -- No room is locked yet, but the settings of every call are needed here, too.
  perform "{schema}".lock_rooms('{}');
  -- A waiter may hold by its message.
  perform "{schema}".lock_durability(true);
  if not pg_try_advisory_xact_lock(1212236372, 1024) then return 0; end if;
  delete from "{schema}".lock_tombstones where (key, id) in (
    select key, id from "{schema}".lock_tombstones where until <= v_now limit p_count for update skip locked
  );
  for v_key in
    select key from "{schema}".lock_holders where expires_at <= v_now
    union select key from "{schema}".lock_waiters as waiter where remembered_until <= v_now and not exists (
      select from "{schema}".lock_wait_groups as known
      where known.key = waiter.key and known.name = waiter.group_name and known.remembered_until > v_now
    )
    union select key from "{schema}".lock_closures where until <= v_now
    limit p_count
  loop
    if pg_try_advisory_xact_lock(1212236372, hashtext(v_key) & 1023) then
      perform "{schema}".lock_settle(v_key, "{schema}".lock_clock(), null, '', '');
      -- Also behind a waiter that goes on. Otherwise the next sweep would find the same rooms again, and no others.
      with gone as (
        delete from "{schema}".lock_waiters where key = v_key and place in (
          select place from "{schema}".lock_queue(v_key) where remembered_until <= v_now
        ) returning group_name
      )
      select array_agg(group_name) into v_left from gone;
      perform "{schema}".lock_leave_groups(v_key, v_left);
    else
      v_skipped := true;
    end if;
    v_found := v_found + 1;
  end loop;
  return case when v_skipped or v_found = p_count then 1 else 0 end;
end $body$;
