-- The next rooms under a prefix, in order of their keys, with what has not expired. Changes nothing.
--
-- Inputs  $1 the prefix · $2 the last key of the page before, or nothing · $3 how many rooms
-- Result  a row for each room: its key, and its tickets as JSON
with present as (
  select ($1::text) collate "C" as prefix, ($2::text) collate "C" as last, $3::text::bigint as count,
    ("{schema}".lock_clock() / 1000)::double precision as now
), page as (
  select key from (
    (select distinct key from "{schema}".lock_holders, present
      where key >= prefix and starts_with(key, prefix) and (last is null or key > last) order by key
      limit (select count from present))
    union
    (select distinct key from "{schema}".lock_waiters, present
      where key >= prefix and starts_with(key, prefix) and (last is null or key > last) order by key
      limit (select count from present))
    union
    (select key from "{schema}".lock_closures, present
      where key >= prefix and starts_with(key, prefix) and (last is null or key > last) order by key
      limit (select count from present))
  ) as keys order by key limit (select count from present)
)
select page.key, json_build_object(
  'holders', (
    select coalesce(json_agg(json_build_object(
      'id', id, 'units', units, 'limit', unit_limit, 'fence', fence::text, 'owner', owner, 'heldMs', now - since,
      'remainingMs', expires_at - now, 'state', state
    ) order by fence), '[]') from "{schema}".lock_holders as holder where holder.key = page.key and expires_at > now
  ),
  'queue', (
    select coalesce(json_agg(json_build_object(
      'id', id, 'units', units, 'limit', unit_limit, 'owner', owner, 'waitedMs', now - since
    ) order by place), '[]') from "{schema}".lock_waiters as waiter
    where waiter.key = page.key and remembered_until > now
  ),
  -- With the lock-delay of holders that have expired and are not cleared yet.
  'closedMs', greatest(0, coalesce(greatest(
    (select until from "{schema}".lock_closures as closure where closure.key = page.key),
    (select max(expires_at + lock_delay_ms) from "{schema}".lock_holders as gone
      where gone.key = page.key and state = 'h' and expires_at <= now)
  ), 0) - now)
)::text as room
from page, present order by page.key
