-- The room in general, for all verbs. Follows law/room.ts function by function.
--
-- Every change of a room happens under its lock, which ends with the transaction. A call is one statement, so no client can stop
-- while it has the lock, and the next call sees what was committed. Rooms share 1024 locks by their hash: locks are in memory
-- that the whole server shares, and a call may need some hundreds.

create function "{schema}".lock_rooms(p_keys text[]) returns void language plpgsql as $body$
begin
  -- Sessions of our own have these settings from the start, so one comparison is enough for them.
  if concat_ws(
    ' ', current_setting('transaction_isolation'), current_setting('transaction_read_only'),
    current_setting('lock_timeout'), current_setting('statement_timeout'),
    current_setting('enable_seqscan'), current_setting('enable_bitmapscan'), current_setting('jit')
  ) <> 'read committed off 0 5s off off off' then
    perform "{schema}".lock_check_settings();
  end if;
  if array_length(p_keys, 1) = 1 then
    perform pg_advisory_xact_lock(1212236372, hashtext(p_keys[1]) & 1023);
  else
    -- In a fixed order, so that two calls never wait for one another.
    perform pg_advisory_xact_lock(1212236372, locks.lock)
    from (select distinct hashtext(key) & 1023 as lock from unnest(p_keys) as key order by 1) as locks;
  end if;
end $body$;

create function "{schema}".lock_check_settings() returns void language plpgsql as $body$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'A call of the lock store has to be READ COMMITTED' using errcode = '25001';
  end if;
  -- Otherwise a standby that lags could answer that a key is taken, because that needs no write.
  if current_setting('transaction_read_only') = 'on' then
    raise exception 'A call of the lock store has to be able to write' using errcode = '25006';
  end if;
  -- The session of a pooler or of the application has other limits, or none, or one of hours. A room that is locked for ever must not
  -- collect one server process for each call that was given up.
  if current_setting('lock_timeout') <> '0' or current_setting('statement_timeout') <> '5s' then
    perform set_config('lock_timeout', '5s', true);
  end if;
  -- Statistics of tables that fill and empty all the time are mostly wrong, and plans are kept for long. So sequential scans are
  -- off. Such a plan looks so expensive that PostgreSQL would compile it, which takes longer than all the rest: so jit is off. Only
  -- a plain index scan remembers which entries lead to dead rows, of which there are many here: so bitmap scans are off.
  perform set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true);
end $body$;

-- The server's time in microseconds. Read only under the lock, so that it does not run backwards in a room.
create function "{schema}".lock_clock() returns bigint language sql as $body$
  select (extract(epoch from clock_timestamp()) * 1000000)::bigint
$body$;

-- Lets a ticket hold the key (h), or offers it the key (o), and returns its fence: max(last + 1, store time in µs). p_last is the highest
-- fence of the room, and lock_fences has the highest one of all rooms that share the lock. The caller has that lock, so no other
-- call raises it meanwhile.
create function "{schema}".lock_hold(
  p_key text, p_us bigint, p_last bigint, p_id text, p_units double precision, p_unit_limit double precision,
  p_lock_delay_ms double precision, p_state "char", p_expires_at double precision, p_hold_until double precision, p_inbox text,
  p_owner text
) returns bigint language plpgsql as $body$
declare
  v_fence bigint;
begin
  -- In one statement: a second one would cost as much again.
  loop
    with risen as (
      update "{schema}".lock_fences as known set fence = greatest(known.fence + 1, p_last + 1, p_us)
      where known.lock = hashtext(p_key) & 1023 returning known.fence
    )
    insert into "{schema}".lock_holders
    select p_key, p_id, p_units, p_unit_limit, p_lock_delay_ms, risen.fence, p_us / 1000, p_state, p_expires_at, p_hold_until, p_inbox,
      p_owner
    from risen returning fence into v_fence;
    exit when found;
    -- The first key with this lock.
    insert into "{schema}".lock_fences values (hashtext(p_key) & 1023, 0);
  end loop;
  return v_fence;
end $body$;

-- Sends a message to the process of a ticket: `<id>`, a hint to ask again, or `<id> <fence> <nowMs>`, the lease itself.
create function "{schema}".lock_wake(p_message text, p_inbox text, p_own text) returns text language plpgsql as $body$
begin
  -- NOTIFY makes commits wait for one another. So a process hears of its own waiters in the answer.
  if p_inbox = p_own then return E'\n*' || p_message; end if;
  -- Without its message a waiter asks by itself, a little later.
  if "{schema}".lock_can_notify() then perform pg_notify(p_inbox, p_message); end if;
  return '';
end $body$;

-- A session that listens and never ends its transaction fills the queue. With a full queue the commit would fail, and the release
-- with it.
create function "{schema}".lock_can_notify() returns boolean language sql as $body$
  select pg_notification_queue_usage() < 0.9
$body$;

-- Whether a message to another process may be a lease. Commits that notify wait for one another, and a grant waits for the disk
-- meanwhile. So one granting commit is under way at a time: the lock ends with it. All others make offers, which do not wait for the
-- disk. Their confirmations do, and reach it together.
create function "{schema}".lock_may_grant_by_notify() returns boolean language sql as $body$
  select pg_try_advisory_xact_lock(1212236374, 0)
$body$;

-- Whether a waiter holds by its message, as the lines of lock_settle say.
create function "{schema}".lock_granted(p_wakes text) returns boolean immutable language sql as $body$
  select strpos(p_wakes, E'\n!') > 0
$body$;

-- Whether no session listens to an inbox. A session that listens shares this lock for as long as it lives (see presence.sql), so no
-- other session gets the lock alone. It is given back in the same expression: a process that comes back need not wait for our
-- commit, a call that meets many dead processes does not fill the server's lock table, and no interruption leaves it with the session.
create function "{schema}".lock_is_unreached(p_inbox text) returns boolean language sql as $body$
  select case when pg_try_advisory_lock(1212236373, hashtext(p_inbox)) then pg_advisory_unlock(1212236373, hashtext(p_inbox)) else false end
$body$;

-- Makes the commit wait for the disk as promised, whatever the role or the database is set to. Their stronger and weaker forms of
-- waiting (`remote_apply`, `local`) stay.
create function "{schema}".lock_durability(p_waits boolean) returns void language plpgsql as $body$
begin
  if not p_waits then
    perform set_config('synchronous_commit', 'off', true);
  elsif current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
end $body$;

create function "{schema}".lock_close(p_key text, p_until double precision) returns void language plpgsql as $body$
begin
  insert into "{schema}".lock_closures as known values (p_key, p_until)
  on conflict (key) do update set until = greatest(known.until, excluded.until);
end $body$;

-- Clears what has expired and admits from the head of the queue. The result is p_wakes and these lines:
--   *<id>                  a waiter of the calling process was offered the key; not for the one that asks
--   *<id> <fence> <nowMs>  a waiter of the calling process holds from now
--   !                      a waiter holds from now, of whatever process
--   +<key>                 the room is to be asked again at once
--
-- The message to a waiter is its lease if the server has heard of the waiter within its acceptance term, and if a session of its
-- process listens. The commit then waits for the disk, because the waiter begins to work at once.
--
-- A crowd of readers would make the call so long that it delays others, or that the server ends it and no waiter is let in. So a call
-- admits and drops 200 waiters of a room at most, and then no more in any room. A line `+key` says that there may be more.
create function "{schema}".lock_settle(p_key text, p_us bigint, p_asker text, p_inbox text, p_wakes text)
returns text language plpgsql as $body$
declare
  v_now double precision := p_us / 1000;
  v_wakes text := p_wakes;
  v_budget integer := 200;
  v_units double precision;
  v_limit double precision;
  v_last bigint;
  v_dropped integer;
  v_closed boolean;
  -- Inboxes to which a session listens, and inboxes of waiters that were passed over.
  v_heard text[] := array[p_inbox];
  v_unreached text[] := '{}';
  -- The group of the waiter that was looked at last.
  v_group record;
  v_group_name text := '';
  -- The groups of waiters that were dropped or admitted.
  v_left text[] := '{}';
  -- The units and the limit of the first waiter that was passed over, or null.
  v_head_units double precision;
  v_head_limit double precision;
  v_holder record;
  -- The waiter that is looked at. At first it also has what is known of the room.
  v_waiter record;
  v_brings boolean;
  v_message text;
begin
  for v_look in 1 .. 2 loop
    -- All in one statement, the first waiter included: each further statement would cost as much as its work.
    select held.*, exists (select from "{schema}".lock_closures where key = p_key) as is_closed, first.*
    into v_waiter
    from (
      select
        coalesce(sum(units), 0) as sum_of_units, coalesce(min(unit_limit), 9007199254740991) as least_limit,
        coalesce(max(fence), 0) as last_fence, coalesce(bool_or(expires_at <= v_now), false) as has_expired
      from "{schema}".lock_holders where key = p_key
    ) as held
    left join lateral (
      select * from "{schema}".lock_waiters where key = p_key order by place limit 1
    ) as first on true;
    exit when v_look = 2 or not (v_waiter.has_expired or v_waiter.is_closed);
    -- When an offer has lapsed, the waiters right behind it that have been silent for their own acceptance term lose their places, too.
    -- If they are too many for one call, the offer stays until the next call.
    if v_waiter.has_expired and exists (
      select from "{schema}".lock_holders where key = p_key and state = 'o' and expires_at <= v_now
    ) then
      with front as materialized (
        select head.place, coalesce(known.heard_at, head.heard_at) + head.accept_ms > v_now as is_heard
        from (select * from "{schema}".lock_waiters where key = p_key order by place limit v_budget) as head
        left join "{schema}".lock_wait_groups as known on known.key = p_key and known.name = head.group_name
      ), gone as (
        delete from "{schema}".lock_waiters where key = p_key and place in (
          select place from front
          where place < coalesce((select min(place) from front where is_heard), 9223372036854775807)
        ) returning group_name
      )
      select count(*), coalesce(array_agg(group_name), '{}') into v_dropped, v_left from gone;
      v_budget := v_budget - v_dropped;
      if v_budget = 0 then
        perform "{schema}".lock_leave_groups(p_key, v_left);
        return v_wakes || E'\n+' || to_json(p_key)::text;
      end if;
    end if;
    for v_holder in
      delete from "{schema}".lock_holders where key = p_key and expires_at <= v_now
      returning state, expires_at, lock_delay_ms
    loop
      -- Only a holder that had confirmed may have left work unfinished.
      if v_holder.state = 'h' and v_holder.lock_delay_ms > 0 then
        perform "{schema}".lock_close(p_key, v_holder.expires_at + v_holder.lock_delay_ms);
      end if;
    end loop;
    delete from "{schema}".lock_closures where key = p_key and until <= v_now;
  end loop;
  v_units := v_waiter.sum_of_units;
  v_limit := v_waiter.least_limit;
  v_last := v_waiter.last_fence;
  v_closed := v_waiter.is_closed;
  -- The first round passes over waiters whose process had a session and has none any more, while the first of them would fit, too.
  -- They keep their places: the process may have lost only its connection. The second round offers them what is left.
  for v_round in 1 .. 2 loop
    if v_round = 2 then
      select * into v_waiter from "{schema}".lock_waiters where key = p_key order by place limit 1;
    end if;
    while v_waiter.place is not null loop
      -- A join with the groups would make a hand-over without them a sixth slower.
      if v_waiter.group_name <> '' then
        if v_waiter.group_name <> v_group_name then
          v_group_name := v_waiter.group_name;
          select * into v_group from "{schema}".lock_wait_groups where key = p_key and name = v_group_name;
        end if;
        v_waiter.heard_at := v_group.heard_at;
        v_waiter.remembered_until := v_group.remembered_until;
        v_waiter.listens := v_group.listens;
      end if;
      exit when v_waiter.remembered_until > v_now
        and (v_closed or v_units + v_waiter.units > least(v_limit, v_waiter.unit_limit));
      if v_budget = 0 or strpos(p_wakes, E'\n+') > 0 then
        v_wakes := v_wakes || E'\n+' || to_json(p_key)::text;
        exit;
      end if;
      if v_round = 1 and v_waiter.listens and v_waiter.remembered_until > v_now and v_waiter.inbox <> all (v_heard) then
        if v_waiter.inbox = any (v_unreached) or "{schema}".lock_is_unreached(v_waiter.inbox) then
          if cardinality(v_unreached) = 0 then
            v_head_units := v_waiter.units;
            v_head_limit := v_waiter.unit_limit;
          end if;
          v_unreached := v_unreached || v_waiter.inbox;
          exit when cardinality(v_unreached) = 200;
          select * into v_waiter from "{schema}".lock_waiters
          where key = p_key and place > v_waiter.place order by place limit 1;
          continue;
        end if;
        v_heard := v_heard || v_waiter.inbox;
      end if;
      v_budget := v_budget - 1;
      if v_waiter.remembered_until > v_now then
        v_units := v_units + v_waiter.units;
        v_limit := least(v_limit, v_waiter.unit_limit);
        v_brings := v_waiter.grant_ms > 0 and v_waiter.heard_at + v_waiter.accept_ms > v_now
          and v_waiter.listens and v_waiter.inbox = any (v_heard) and v_waiter.id is distinct from p_asker
          and (v_waiter.inbox = p_inbox or "{schema}".lock_can_notify() and "{schema}".lock_may_grant_by_notify());
        v_last := "{schema}".lock_hold(
          p_key, p_us, v_last, v_waiter.id, v_waiter.units, v_waiter.unit_limit, v_waiter.lock_delay_ms,
          case when v_brings then 'h'::"char" else 'o' end,
          v_now + case when v_brings then v_waiter.grant_ms else v_waiter.accept_ms end, 0, v_waiter.inbox, v_waiter.owner
        );
        if v_waiter.id is distinct from p_asker then
          v_message := v_waiter.id || case when v_brings then ' ' || v_last || ' ' || v_now else '' end;
          v_wakes := v_wakes || "{schema}".lock_wake(v_message, v_waiter.inbox, p_inbox)
            || case when v_brings then E'\n!' else '' end;
        end if;
      end if;
      if v_waiter.group_name <> '' then v_left := v_left || v_waiter.group_name; end if;
      with gone as (
        delete from "{schema}".lock_waiters where key = p_key and place = v_waiter.place
      )
      select * into v_waiter from "{schema}".lock_waiters
      where key = p_key and place > v_waiter.place order by place limit 1;
      exit when v_units + v_head_units > least(v_limit, v_head_limit);
    end loop;
    exit when cardinality(v_unreached) = 0;
  end loop;
  if cardinality(v_left) > 0 then perform "{schema}".lock_leave_groups(p_key, v_left); end if;
  return v_wakes;
end $body$;

-- Notes that a waiter has asked, before anything is dropped: a late waiter keeps its place, if it still has it. A waiter of a group
-- leaves the group, because it was heard of at another time than the others, and perhaps by another process.
create function "{schema}".lock_remember(
  p_key text, p_id text, p_now double precision, p_patience_ms double precision, p_inbox text, p_listens boolean
) returns void language plpgsql as $body$
declare
  v_left text;
begin
  update "{schema}".lock_waiters as waiter
  set heard_at = p_now, remembered_until = p_now + p_patience_ms, inbox = p_inbox, listens = p_listens, group_name = ''
  from (select place, group_name from "{schema}".lock_waiters where key = p_key and id = p_id) as before
  where waiter.key = p_key and waiter.place = before.place returning before.group_name into v_left;
  if v_left <> '' then perform "{schema}".lock_leave_groups(p_key, array[v_left]); end if;
end $body$;

-- How long until the server's clock alone may let a ticket in; at least 1 ms, so that no client spins. p_end: when the first holder
-- expires. p_closed_until: when a lock-delay ends. Null or infinity: there is none.
create function "{schema}".lock_change_in(p_end double precision, p_closed_until double precision, p_now double precision)
returns double precision immutable language sql as $body$
  select greatest(1, ceil(coalesce(least(nullif(p_end, 'infinity'), p_closed_until) - p_now, 1)))
$body$;

create function "{schema}".lock_until_change(p_key text, p_now double precision)
returns double precision language sql as $body$
  select "{schema}".lock_change_in(
    (select min(expires_at) from "{schema}".lock_holders where key = p_key),
    (select until from "{schema}".lock_closures where key = p_key and until > p_now),
    p_now
  )
$body$;

-- When a waiter should ask again if nothing wakes it: to stay remembered, and to see the next expiry, because all waiters in front of
-- it may be dead. Only the head asks more often than six times in an acceptance term.
create function "{schema}".lock_ask_again(
  p_is_head boolean, p_change_in double precision, p_patience_ms double precision, p_accept_ms double precision
) returns double precision immutable language sql as $body$
  select ceil(least(
    p_patience_ms / 3, p_accept_ms * 2 / 3,
    greatest(case when p_is_head then 0 else p_accept_ms / 6 end, p_change_in)
  ))
$body$;

-- The end of the minimum hold of a ticket that is confirmed now; 0 without a minimum. 0 and not the present instant, which would lie
-- in the future again after the clock was set back.
create function "{schema}".lock_hold_until(
  p_state "char", p_until double precision, p_now double precision, p_min_hold_ms double precision
) returns double precision immutable language sql as $body$
  select case when p_state <> 'o' then p_until when p_min_hold_ms > 0 then p_now + p_min_hold_ms else 0 end
$body$;

-- What a ticket is in a settled room: h<fence> · q<askAgainMs> <nowMs> · g · e<reason>, or null when it is unknown. Confirms and keeps a
-- holder.
create function "{schema}".lock_find(
  p_key text, p_id text, p_now double precision, p_ttl_ms double precision, p_accept_ms double precision,
  p_patience_ms double precision, p_min_hold_ms double precision, p_inbox text
) returns text language plpgsql as $body$
declare
  v_fence bigint;
  v_is_head boolean;
  v_evicted boolean;
  v_reason text;
begin
  -- Never sooner than promised before: a request with a shorter ttl may arrive late.
  update "{schema}".lock_holders set
    state = 'h',
    hold_until = "{schema}".lock_hold_until(state, hold_until, p_now, p_min_hold_ms),
    expires_at = greatest(
      expires_at, p_now + p_ttl_ms, "{schema}".lock_hold_until(state, hold_until, p_now, p_min_hold_ms)
    ),
    inbox = p_inbox
  where key = p_key and id = p_id and state <> 'l'
  returning fence into v_fence;
  if found then return 'h' || v_fence; end if;
  if exists (select from "{schema}".lock_holders where key = p_key and id = p_id) then return 'g'; end if;
  select place = (select min(place) from "{schema}".lock_waiters where key = p_key) into v_is_head
  from "{schema}".lock_waiters where key = p_key and id = p_id;
  if found then return 'q' || "{schema}".lock_ask_again(v_is_head, "{schema}".lock_until_change(p_key, p_now), p_patience_ms, p_accept_ms) || ' ' || p_now; end if;
  select evicted, reason into v_evicted, v_reason from "{schema}".lock_tombstones
  where key = p_key and id = p_id and until > p_now;
  if not found then return null; end if;
  return case when v_evicted then 'e' || v_reason else 'g' end;
end $body$;

-- Makes a tombstone. Removes up to ten that have ended, so that there are never many more than were made in a minute.
create function "{schema}".lock_bury(p_key text, p_id text, p_now double precision, p_evicted boolean, p_reason text)
returns void language plpgsql as $body$
begin
  delete from "{schema}".lock_tombstones where (key, id) in (
    select key, id from "{schema}".lock_tombstones where until <= p_now order by until limit 10 for update skip locked
  );
  insert into "{schema}".lock_tombstones values (p_key, p_id, p_now + 60000, p_evicted, p_reason)
  on conflict (key, id) do update set until = excluded.until, evicted = excluded.evicted, reason = excluded.reason;
end $body$;
