-- Asks for keys, or asks again: one key for each ticket.
--
-- Result  a line for each ticket: h<fence> · q<ahead> <askAgainMs> <nowMs> · b<retryMs> · g · e<reason>
--         then the lines of lock_settle (room.sql)
create function "{schema}".lock_acquire(
  p_keys text[], p_ids text[], p_units double precision[], p_limits double precision[], p_ttl_ms double precision[],
  p_accept_ms double precision[], p_patience_ms double precision[], p_min_hold_ms double precision[],
  p_lock_delay_ms double precision[], p_owners text[], p_inbox text, p_listens boolean,
  p_logged boolean
) returns text language plpgsql set search_path = pg_catalog as $body$
declare
  v_us bigint;
  v_now double precision;
  v_answers text := '';
  v_answer text;
  v_wakes text := '';
  v_holds boolean := false;
  v_key text;
  v_id text;
  v_units double precision;
  v_limit double precision;
  v_end double precision;
  v_last bigint;
  v_mine boolean;
  v_head double precision;
  v_closed_until double precision;
  v_queued boolean;
  v_buried boolean;
  v_settled boolean;
  v_known boolean;
  v_listens boolean;
  v_ahead bigint;
  v_next bigint;
  -- The place of the waiter that was answered last, and its key: v_ahead waiters are in front of it. So a crowd that asks in one call
  -- is counted once. To count five thousand waiters takes 1.5 ms.
  v_place bigint;
  v_counted text;
begin
  perform "{schema}".lock_rooms(p_keys);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  for v_index in 1 .. array_length(p_keys, 1) loop
    v_key := p_keys[v_index];
    v_id := p_ids[v_index];
    v_answer := null;
    for v_attempt in 1 .. 2 loop
      select
        coalesce(sum(units), 0), coalesce(min(unit_limit), 9007199254740991), coalesce(max(fence), 0),
        coalesce(min(expires_at), 'infinity'), coalesce(bool_or(id = v_id), false),
        (
          select case when group_name = '' then remembered_until else (
            select known.remembered_until from "{schema}".lock_wait_groups as known
            where known.key = v_key and known.name = head.group_name
          ) end
          from "{schema}".lock_waiters as head where key = v_key order by place limit 1
        ),
        (select until from "{schema}".lock_closures where key = v_key and until > v_now),
        exists (select from "{schema}".lock_waiters where key = v_key and id = v_id),
        exists (select from "{schema}".lock_tombstones where key = v_key and id = v_id and until > v_now)
      into v_units, v_limit, v_last, v_end, v_mine, v_head, v_closed_until, v_queued, v_buried
      from "{schema}".lock_holders where key = v_key;
      -- Nothing has expired, and there is no waiter, or no waiter fits beside the holders.
      v_settled := v_end > v_now and (v_head is null or v_head > v_now and v_units >= v_limit);
      v_known := v_mine or v_queued or v_buried;
      exit when v_attempt = 2 or v_settled and not v_known;
      if v_queued then
        -- The process may not know yet that its session has ended. Its waiters must not be passed over for ever.
        v_listens := coalesce(v_listens, p_listens and not "{schema}".lock_is_unreached(p_inbox));
        perform "{schema}".lock_remember(v_key, v_id, v_now, p_patience_ms[v_index], p_inbox, v_listens);
      end if;
      if not v_settled then
        v_counted := null;
        v_wakes := "{schema}".lock_settle(v_key, v_us, v_id, p_inbox, v_wakes);
      end if;
      if v_known then
        v_answer := "{schema}".lock_find(
          v_key, v_id, v_now, p_ttl_ms[v_index], p_accept_ms[v_index], p_patience_ms[v_index],
          p_min_hold_ms[v_index], p_inbox
        );
      end if;
      exit when v_answer is not null;
    end loop;
    if v_answer like 'q%' then
      select place into v_next from "{schema}".lock_waiters where key = v_key and id = v_id;
      if v_counted is distinct from v_key or v_place > v_next then
        v_counted := v_key;
        v_place := 0;
        v_ahead := 0;
      end if;
      select v_ahead + count(*) into v_ahead
      from "{schema}".lock_waiters where key = v_key and place >= v_place and place < v_next;
      v_place := v_next;
      v_answer := 'q' || v_ahead || ' ' || substr(v_answer, 2);
    elsif v_answer is null and v_head is null and v_closed_until is null
      and v_units + p_units[v_index] <= least(v_limit, p_limits[v_index])
    then
      v_last := "{schema}".lock_hold(
        v_key, v_us, v_last, v_id, p_units[v_index], p_limits[v_index], p_lock_delay_ms[v_index], 'h',
        v_now + greatest(p_ttl_ms[v_index], p_min_hold_ms[v_index]),
        "{schema}".lock_hold_until('o', 0, v_now, p_min_hold_ms[v_index]),
        p_inbox, p_owners[v_index]
      );
      v_answer := 'h' || v_last;
    elsif v_answer is null and p_patience_ms[v_index] = 0 then
      v_answer := 'b' || "{schema}".lock_change_in(v_end, v_closed_until, v_now);
    elsif v_answer is null then
      v_listens := coalesce(v_listens, p_listens and not "{schema}".lock_is_unreached(p_inbox));
      if v_counted is distinct from v_key then
        v_counted := v_key;
        v_place := 0;
        v_ahead := 0;
      end if;
      with line as (
        select coalesce(max(place), 0) + 1 as place, v_ahead + count(*) as ahead
        from "{schema}".lock_waiters where key = v_key and place >= v_place
      ), added as (
        insert into "{schema}".lock_waiters
        select
          v_key, place, v_id, p_units[v_index], p_limits[v_index], p_accept_ms[v_index], p_lock_delay_ms[v_index],
          case when p_min_hold_ms[v_index] = 0 and p_lock_delay_ms[v_index] = 0 then p_ttl_ms[v_index] else 0 end,
          v_now, v_now, v_now + p_patience_ms[v_index], p_inbox, v_listens, p_owners[v_index], ''
        from line
      )
      select place, ahead into v_place, v_ahead from line;
      v_answer := 'q' || v_ahead || ' ' || "{schema}".lock_ask_again(
        v_ahead = 0, "{schema}".lock_change_in(v_end, v_closed_until, v_now), p_patience_ms[v_index], p_accept_ms[v_index]
      ) || ' ' || v_now;
    end if;
    v_holds := v_holds or v_answer like 'h%';
    v_answers := v_answers || v_answer || E'\n';
  end loop;
  -- A ticket that waits or is gone was promised nothing that a crash could take back.
  perform "{schema}".lock_durability((v_holds or "{schema}".lock_granted(v_wakes)) and p_logged);
  return rtrim(v_answers, E'\n') || v_wakes;
end $body$;
