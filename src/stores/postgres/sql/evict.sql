-- Removes one ticket of a room by force, or all of them (p_id is null), wakes them, and admits the next waiters. The reason is JSON.
-- With p_waiting, tickets that hold or were offered the key stay.
--
-- Result  the number of ids removed, a line for each of them,
--         then the lines of lock_settle (room.sql)
create function "{schema}".lock_evict(
  p_key text, p_id text, p_reason text, p_waiting boolean, p_inbox text, p_logged boolean
) returns text language plpgsql set search_path = pg_catalog as $body$
declare
  v_us bigint;
  v_now double precision;
  v_wakes text := '';
  v_removed text[] := '{}';
  v_left text[] := '{}';
  v_ticket record;
begin
  perform "{schema}".lock_rooms(array[p_key]);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  v_wakes := "{schema}".lock_settle(p_key, v_us, null, p_inbox, v_wakes);
  for v_ticket in
    with holder as (
      delete from "{schema}".lock_holders where key = p_key and (p_id is null or id = p_id) and not p_waiting
      returning id, inbox, state, lock_delay_ms, fence as place, ''::text as group_name
    ), waiter as (
      delete from "{schema}".lock_waiters where key = p_key and (p_id is null or id = p_id)
      returning id, inbox, 'w'::"char", 0::double precision, place, group_name
    )
    select holder.*, 1 as queue from holder union all select waiter.*, 2 from waiter order by queue, place
  loop
    if v_ticket.state = 'h' and v_ticket.lock_delay_ms > 0 then
      perform "{schema}".lock_close(p_key, v_now + v_ticket.lock_delay_ms);
    end if;
    perform "{schema}".lock_bury(p_key, v_ticket.id, v_now, true, p_reason);
    v_removed := v_removed || v_ticket.id;
    v_left := v_left || v_ticket.group_name;
    v_wakes := v_wakes || "{schema}".lock_wake(v_ticket.id, v_ticket.inbox, p_inbox);
  end loop;
  perform "{schema}".lock_leave_groups(p_key, v_left);
  v_wakes := "{schema}".lock_settle(p_key, v_us, null, p_inbox, v_wakes);
  perform "{schema}".lock_durability(p_logged);
  return array_to_string(cardinality(v_removed)::text || v_removed, E'\n') || v_wakes;
end $body$;
