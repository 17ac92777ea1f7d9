-- Groups of waiters of one process for one key, each remembered by one row; see schema.sql. A thousand waiters that are rows of their
-- own take the server a hundredth of a processor, and ten thousand take most of it.

-- The queue of a key, with the times of the groups. The function is one statement, so that PostgreSQL puts it into the query that
-- calls it. Where only the head matters and every microsecond does, the group is looked up instead, if there is one.
create function "{schema}".lock_queue(p_key text) returns table (
  place bigint, id text, units double precision, unit_limit double precision, accept_ms double precision,
  lock_delay_ms double precision, grant_ms double precision, since double precision, heard_at double precision,
  remembered_until double precision, inbox text, listens boolean, owner text, group_name text
) stable language sql as $body$
  select
    waiter.place, waiter.id, waiter.units, waiter.unit_limit, waiter.accept_ms, waiter.lock_delay_ms, waiter.grant_ms,
    waiter.since, coalesce(known.heard_at, waiter.heard_at), coalesce(known.remembered_until, waiter.remembered_until),
    waiter.inbox, coalesce(known.listens, waiter.listens), waiter.owner, waiter.group_name
  from "{schema}".lock_waiters as waiter
  left join "{schema}".lock_wait_groups as known on known.key = p_key and known.name = waiter.group_name
  where waiter.key = p_key
$body$;

-- Notes that waiters have left their groups, whatever the way. p_names: a name for each waiter, empty for a waiter without a group;
-- or null.
create function "{schema}".lock_leave_groups(p_key text, p_names text[]) returns void language plpgsql as $body$
begin
  -- Nearly always one waiter leaves.
  if cardinality(p_names) = 1 then
    update "{schema}".lock_wait_groups set size = size - 1, changed = true
    where key = p_key and name = p_names[1] and size > 1;
    if not found then delete from "{schema}".lock_wait_groups where key = p_key and name = p_names[1]; end if;
    return;
  end if;
  with departed as materialized (
    select name, count(*) as count from unnest(p_names) as name where name <> '' group by name
  ), emptied as (
    delete from "{schema}".lock_wait_groups as known using departed
    where known.key = p_key and known.name = departed.name and known.size <= departed.count
  )
  update "{schema}".lock_wait_groups as known set size = known.size - departed.count, changed = true
  from departed where known.key = p_key and known.name = departed.name and known.size > departed.count;
end $body$;

-- Keeps groups alive: one key for each group.
--
-- Result  a line for each group
--           q<askAgainMs> <nowMs>  all of its waiters wait. If the head of the queue is one of them, there follows
--                                  ` <askAgainMs> <id>` for the head, which asks sooner
--           -                      a waiter has left it, or there is no such group
--         then the lines of lock_settle (room.sql)
create function "{schema}".lock_renew_groups(
  p_keys text[], p_names text[], p_accept_ms double precision[], p_patience_ms double precision[], p_inbox text,
  p_listens boolean, p_logged boolean
) returns text language plpgsql set search_path = pg_catalog as $body$
declare
  v_us bigint;
  v_now double precision;
  v_answers text := '';
  v_wakes text := '';
  v_listens boolean;
  v_key text;
  v_change_in double precision;
  v_head text;
  v_head_group text;
begin
  perform "{schema}".lock_rooms(p_keys);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  v_listens := p_listens and not "{schema}".lock_is_unreached(p_inbox);
  -- All groups of the call before anything is dropped: late waiters keep their places, if they still have them. A group that a waiter has left is
  -- not heard of. So it does not keep a waiter whose release was lost.
  update "{schema}".lock_wait_groups as known
  set heard_at = v_now, remembered_until = v_now + asked.patience_ms, listens = v_listens
  from unnest(p_keys, p_names, p_patience_ms) as asked (key, name, patience_ms)
  where known.key = asked.key and known.name = asked.name and not known.changed;
  for v_index in 1 .. array_length(p_keys, 1) loop
    if v_key is distinct from p_keys[v_index] then
      v_key := p_keys[v_index];
      v_wakes := "{schema}".lock_settle(v_key, v_us, null, p_inbox, v_wakes);
      v_change_in := "{schema}".lock_until_change(v_key, v_now);
      select id, group_name into v_head, v_head_group from "{schema}".lock_waiters where key = v_key order by place limit 1;
    end if;
    if exists (
      select from "{schema}".lock_wait_groups where key = v_key and name = p_names[v_index] and not changed
    ) then
      v_answers := v_answers || 'q'
        || "{schema}".lock_ask_again(false, v_change_in, p_patience_ms[v_index], p_accept_ms[v_index]) || ' ' || v_now;
      if v_head_group = p_names[v_index] then
        v_answers := v_answers || ' '
          || "{schema}".lock_ask_again(true, v_change_in, p_patience_ms[v_index], p_accept_ms[v_index]) || ' ' || v_head;
      end if;
    else
      v_answers := v_answers || '-';
    end if;
    v_answers := v_answers || E'\n';
  end loop;
  perform "{schema}".lock_durability("{schema}".lock_granted(v_wakes) and p_logged);
  return rtrim(v_answers, E'\n') || v_wakes;
end $body$;

-- Keeps tickets for one key alive, and makes those of them that wait a group. The caller has made up its name. A call that is made
-- again changes nothing.
--
-- Result  the lines of lock_renew
create function "{schema}".lock_join_group(
  p_key text, p_name text, p_ids text[], p_ttl_ms double precision, p_accept_ms double precision,
  p_patience_ms double precision, p_min_hold_ms double precision, p_inbox text, p_listens boolean, p_logged boolean
) returns text language plpgsql set search_path = pg_catalog as $body$
declare
  v_us bigint;
  v_now double precision;
  v_answers text := '';
  v_answer text;
  v_wakes text := '';
  v_holds boolean := false;
  v_left text[];
  v_places bigint[];
  v_head bigint;
  v_change_in double precision;
begin
  perform "{schema}".lock_rooms(array[p_key]);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  with before as materialized (
    select waiter.place, waiter.group_name
    -- Each by the index, even if the statistics know little of so long a queue.
    from unnest(p_ids) as asked (id) cross join lateral (
      select place, group_name from "{schema}".lock_waiters where key = p_key and id = asked.id limit 1
    ) as waiter where waiter.group_name <> p_name
  ), joined as (
    update "{schema}".lock_waiters as waiter set group_name = p_name, inbox = p_inbox
    from before where waiter.key = p_key and waiter.place = before.place returning before.group_name
  )
  select array_agg(group_name) into v_left from joined;
  if v_left is not null then
    insert into "{schema}".lock_wait_groups values (
      p_key, p_name, cardinality(v_left), false, v_now, v_now + p_patience_ms,
      p_listens and not "{schema}".lock_is_unreached(p_inbox)
    );
    perform "{schema}".lock_leave_groups(p_key, v_left);
  end if;
  v_wakes := "{schema}".lock_settle(p_key, v_us, null, p_inbox, v_wakes);
  v_change_in := "{schema}".lock_until_change(p_key, v_now);
  select min(place) into v_head from "{schema}".lock_waiters where key = p_key;
  select array_agg(waiter.place order by asked.index) into v_places
  from unnest(p_ids) with ordinality as asked (id, index)
  left join lateral (
    select place from "{schema}".lock_waiters where key = p_key and id = asked.id limit 1
  ) as waiter on true;
  for v_index in 1 .. array_length(p_ids, 1) loop
    if v_places[v_index] is not null then
      v_answer := 'q'
        || "{schema}".lock_ask_again(v_places[v_index] = v_head, v_change_in, p_patience_ms, p_accept_ms) || ' ' || v_now;
    else
      v_answer := coalesce("{schema}".lock_find(
        p_key, p_ids[v_index], v_now, p_ttl_ms, p_accept_ms, p_patience_ms, p_min_hold_ms, p_inbox
      ), 'g');
    end if;
    v_holds := v_holds or v_answer like 'h%';
    v_answers := v_answers || v_answer || E'\n';
  end loop;
  perform "{schema}".lock_durability((v_holds or "{schema}".lock_granted(v_wakes)) and p_logged);
  return rtrim(v_answers, E'\n') || v_wakes;
end $body$;
