-- Shows rooms, in order of their keys, with what has not expired. Changes nothing.
--
-- Inputs  those of the query for the keys, which stands in `page`: the script page.sql, or a query that gives one key
-- Result  a row for each room: its key, and its tickets as JSON
with present as (
  select ("{schema}".lock_clock() / 1000)::double precision as now
), page as (
  {keys}
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
    ) order by place), '[]') from "{schema}".lock_queue(page.key) where remembered_until > now
  ),
  -- With the lock-delay of holders that have expired and are not cleared yet.
  'closedMs', greatest(0, coalesce(greatest(
    (select until from "{schema}".lock_closures as closure where closure.key = page.key),
    (select max(expires_at + lock_delay_ms) from "{schema}".lock_holders as gone
      where gone.key = page.key and state = 'h' and expires_at <= now)
  ), 0) - now)
)::text as room
from page, present order by page.key
