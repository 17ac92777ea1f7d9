-- Forgets tickets, whether they hold, wait or are unknown, and admits the next waiters.
--
-- Result  a line for each ticket: what it was: h(eld) · q(ueued) · u(nknown)
--         then the lines of lock_settle (room.sql)
create function "{schema}".lock_release(
  p_keys text[], p_ids text[], p_cancel boolean[], p_inbox text, p_logged boolean
)
returns text language plpgsql set search_path = pg_catalog as $body$
declare
  v_us bigint;
  v_now double precision;
  v_answers text := '';
  v_was text;
  -- Whether there may be somebody to admit.
  v_admits boolean;
  v_wakes text := '';
  v_key text;
  v_id text;
  v_left text;
begin
  perform "{schema}".lock_rooms(p_keys);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  for v_index in 1 .. array_length(p_keys, 1) loop
    v_key := p_keys[v_index];
    v_id := p_ids[v_index];
    -- One statement for both, because a second one would cost as much again.
    delete from "{schema}".lock_holders
    where key = v_key and id = v_id and state <> 'l' and expires_at > v_now and hold_until <= v_now
    returning exists (select from "{schema}".lock_waiters where key = v_key) into v_admits;
    if found then
      v_was := 'h';
    else
      v_was := 'u';
      v_wakes := "{schema}".lock_settle(v_key, v_us, v_id, p_inbox, v_wakes);
      delete from "{schema}".lock_waiters where key = v_key and id = v_id returning group_name into v_left;
      if found then
        v_was := 'q';
        if v_left <> '' then perform "{schema}".lock_leave_groups(v_key, array[v_left]); end if;
      else
        -- The ticket was offered the key by this very call, or its minimum hold is not over.
        delete from "{schema}".lock_holders where key = v_key and id = v_id and state <> 'l' and hold_until <= v_now;
        if found then
          v_was := 'h';
        else
          update "{schema}".lock_holders set state = 'l', expires_at = hold_until
          where key = v_key and id = v_id and state <> 'l';
          if found then v_was := 'h'; end if;
        end if;
      end if;
      v_admits := v_was <> 'u';
    end if;
    if p_cancel[v_index] then perform "{schema}".lock_bury(v_key, v_id, v_now, false, ''); end if;
    if v_admits then
      v_wakes := "{schema}".lock_settle(v_key, v_us, v_id, p_inbox, v_wakes);
    end if;
    v_answers := v_answers || v_was || E'\n';
  end loop;
  -- If the server crashes before this reaches the disk, only the release is lost: the key stays taken until the lease ends. A
  -- waiter that is offered the key confirms by a call that reaches the disk, together with everything before it. A waiter that
  -- holds by its message makes no such call.
  perform "{schema}".lock_durability("{schema}".lock_granted(v_wakes) and p_logged);
  return rtrim(v_answers, E'\n') || v_wakes;
end $body$;
