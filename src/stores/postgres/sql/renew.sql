-- Keeps tickets alive.
--
-- Result  a line for each ticket: h<fence> · q<askAgainMs> · g · e<reason>
--         then *<id> for each ticket to wake in the process that asks
create function "{schema}".lock_renew(
  p_keys text[], p_ids text[], p_ttl_ms double precision[], p_accept_ms double precision[],
  p_patience_ms double precision[], p_min_hold_ms double precision[], p_inbox text
) returns text language plpgsql as $body$
declare
  v_us bigint;
  v_now double precision;
  v_answers text[];
  v_wakes text := '';
  v_index integer;
begin
  perform "{schema}".lock_rooms(p_keys);
  v_us := "{schema}".lock_clock();
  v_now := v_us / 1000;
  -- Where nobody waits and nothing has expired there is nothing to settle, which is nearly every renewal.
  with kept as (
    update "{schema}".lock_holders as holder set
      expires_at = greatest(holder.expires_at, v_now + asked.ttl_ms, holder.hold_until), inbox = p_inbox
    from unnest(p_keys, p_ids, p_ttl_ms) as asked (key, id, ttl_ms)
    where holder.key = asked.key and holder.id = asked.id and holder.state = 'h' and holder.expires_at > v_now
      and not exists (select from "{schema}".lock_waiters as waiter where waiter.key = asked.key)
      and not exists (
        select from "{schema}".lock_holders as other where other.key = asked.key and other.expires_at <= v_now
      )
    returning holder.key, holder.id, holder.fence
  )
  select array_agg('h' || kept.fence order by asked.place) into v_answers
  from unnest(p_keys, p_ids) with ordinality as asked (key, id, place)
  left join kept on kept.key = asked.key and kept.id = asked.id;
  for v_index in select place from unnest(v_answers) with ordinality as answer (text, place) where text is null loop
    perform "{schema}".lock_remember(p_keys[v_index], p_ids[v_index], v_now + p_patience_ms[v_index], p_inbox);
    v_wakes := v_wakes || "{schema}".lock_settle(p_keys[v_index], v_us, p_ids[v_index], p_inbox);
    v_answers[v_index] := coalesce("{schema}".lock_find(
      p_keys[v_index], p_ids[v_index], v_now, p_ttl_ms[v_index], p_accept_ms[v_index], p_patience_ms[v_index], p_min_hold_ms[v_index], p_inbox
    ), 'g');
  end loop;
  return array_to_string(v_answers, E'\n') || v_wakes;
end $body$;
