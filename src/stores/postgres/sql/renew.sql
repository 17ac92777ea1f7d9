-- Remembers the waiters of rooms in which nothing else changes, all in one statement. Returns their answers, in the order of the
-- tickets, and null for every other ticket. A thousand waiters of one process would otherwise lock their room for a tenth of a second,
-- every two seconds.
--
-- The room must have several tickets in the call, and no holder among them. In the room nothing has expired, and the waiter at the head
-- does not fit beside the holders.
create function "{schema}".lock_remember_together(
  p_keys text[], p_ids text[], p_accept_ms double precision[], p_patience_ms double precision[], p_now double precision,
  p_inbox text, p_listens boolean
) returns text[] language plpgsql as $body$
declare
  v_answers text[];
begin
  with asked as materialized (
    select * from unnest(p_keys, p_ids, p_accept_ms, p_patience_ms) with ordinality as one (key, id, accept_ms, patience_ms, index)
  ), room as materialized (
    select key, "{schema}".lock_until_change(key, p_now) as change,
      (select min(place) from "{schema}".lock_waiters as waiter where waiter.key = several.key) as head
    from (select key from asked group by key having count(*) > 1) as several
    where (
      select coalesce(sum(units) >= min(unit_limit) and min(expires_at) > p_now and not bool_or(id = any (p_ids)), false)
      from "{schema}".lock_holders as holder where holder.key = several.key
    ) and coalesce((
      select remembered_until > p_now from "{schema}".lock_waiters as waiter where waiter.key = several.key order by place limit 1
    ), false)
  ), remembered as (
    update "{schema}".lock_waiters as waiter
    set heard_at = p_now, remembered_until = p_now + asked.patience_ms, inbox = p_inbox, listens = p_listens
    from asked join room using (key) where waiter.key = asked.key and waiter.id = asked.id
    returning asked.index, 'q' || ceil(least(
      asked.patience_ms / 3, asked.accept_ms * 2 / 3,
      greatest(case when waiter.place = room.head then 0 else asked.accept_ms / 6 end, room.change)
    )) || ' ' || p_now as answer
  )
  select array_agg(answer order by asked.index) into v_answers from asked left join remembered using (index);
  return v_answers;
end $body$;

-- Keeps tickets alive.
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
  v_together text[];
  v_key text;
  v_id text;
begin
  perform "{schema}".lock_rooms(p_keys);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  if array_length(p_keys, 1) > 1 and (select count(distinct key) from unnest(p_keys) as key) < array_length(p_keys, 1) then
    v_listens := p_listens and not "{schema}".lock_is_unreached(p_inbox);
    v_together := "{schema}".lock_remember_together(
      p_keys, p_ids, p_accept_ms, p_patience_ms, v_now, p_inbox, v_listens
    );
  end if;
  for v_index in 1 .. array_length(p_keys, 1) loop
    if v_together[v_index] is not null then
      v_answers := v_answers || v_together[v_index] || E'\n';
      continue;
    end if;
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
        select remembered_until > v_now and mine.unit_limit <= mine.units
        from "{schema}".lock_waiters where key = v_key order by place limit 1
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
