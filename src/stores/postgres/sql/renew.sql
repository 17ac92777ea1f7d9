-- Keeps tickets alive, each for itself. wait-groups.sql has the waiters of one process together.
--
-- Result  a line for each ticket: h<fence> · q<askAgainMs> <nowMs> · g · e<reason>
--         then the lines of lock_settle (room.sql)
create function "{schema}".lock_renew(
  p_keys text[], p_ids text[], p_ttl_ms double precision[], p_accept_ms double precision[],
  p_patience_ms double precision[], p_min_hold_ms double precision[], p_inbox text, p_listens boolean,
  p_logged boolean
) returns text language plpgsql set search_path = pg_catalog as $body$
declare
  v_us bigint;
  v_now double precision;
  v_answers text := '';
  v_answer text;
  v_fence bigint;
  v_wakes text := '';
  v_holds boolean := false;
  v_listens boolean;
  v_key text;
  v_id text;
begin
  perform "{schema}".lock_rooms(p_keys);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  for v_index in 1 .. array_length(p_keys, 1) loop
    v_key := p_keys[v_index];
    v_id := p_ids[v_index];
    -- Nearly every renewal, and every confirmation of a mutex, finds nothing expired, and no waiter that fits beside this holder.
    -- Then there is nothing to settle.
    update "{schema}".lock_holders as mine set
      state = 'h',
      hold_until = "{schema}".lock_hold_until(state, hold_until, v_now, p_min_hold_ms[v_index]),
      expires_at = greatest(
        expires_at, v_now + p_ttl_ms[v_index],
        "{schema}".lock_hold_until(state, hold_until, v_now, p_min_hold_ms[v_index])
      ),
      inbox = p_inbox
    where key = v_key and id = v_id and state <> 'l'
      and not exists (select from "{schema}".lock_holders where key = v_key and expires_at <= v_now)
      and coalesce((
        select mine.unit_limit <= mine.units and case when group_name = '' then remembered_until else (
          select known.remembered_until from "{schema}".lock_wait_groups as known
          where known.key = v_key and known.name = head.group_name
        ) end > v_now
        from "{schema}".lock_waiters as head where key = v_key order by place limit 1
      ), true)
    returning fence into v_fence;
    if found then
      v_answer := 'h' || v_fence;
    else
      v_listens := coalesce(v_listens, p_listens and not "{schema}".lock_is_unreached(p_inbox));
      perform "{schema}".lock_remember(v_key, v_id, v_now, p_patience_ms[v_index], p_inbox, v_listens);
      v_wakes := "{schema}".lock_settle(v_key, v_us, v_id, p_inbox, v_wakes);
      v_answer := coalesce("{schema}".lock_find(
        v_key, v_id, v_now, p_ttl_ms[v_index], p_accept_ms[v_index], p_patience_ms[v_index],
        p_min_hold_ms[v_index], p_inbox
      ), 'g');
    end if;
    v_holds := v_holds or v_answer like 'h%';
    v_answers := v_answers || v_answer || E'\n';
  end loop;
  -- A ticket that waits or is gone was promised nothing that a crash could take back.
  perform "{schema}".lock_durability((v_holds or "{schema}".lock_granted(v_wakes)) and p_logged);
  return rtrim(v_answers, E'\n') || v_wakes;
end $body$;
