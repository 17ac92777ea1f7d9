-- Everything about a key that the law needs to decide about one ticket, but for the queue: always one row.
--   ?1 key   ?2 id of the ticket   ?3 now
-- The others who hold stand in one row however many they are: the law only ever asks for the sum of their units, their
-- smallest limit and their first expiry. Those whose time is over (`overdue`) are counted apart and then read one by one.
SELECT
  own.units,
  own."limit",
  own.lock_delay_ms,
  own.fence,
  own.state,
  own.expires_at,
  own.hold_until,
  own.inbox,
  meta.clock_ms,
  meta.clock_us,
  ifnull(closure.until, 0),
  EXISTS (SELECT 1 FROM waiter WHERE waiter.key = ?1),
  others.overdue,
  others.units,
  others."limit",
  others.expires_at,
  others.fence,
  tombstone.evicted,
  tombstone.reason
FROM meta
JOIN (
  SELECT
    count(*) FILTER (WHERE expires_at <= ?3) AS overdue,
    sum(units) FILTER (WHERE expires_at > ?3) AS units,
    min("limit") FILTER (WHERE expires_at > ?3) AS "limit",
    min(expires_at) FILTER (WHERE expires_at > ?3) AS expires_at,
    ifnull(max(fence), 0) AS fence
  FROM holder
  WHERE key = ?1 AND id <> ?2
) AS others
LEFT JOIN closure ON closure.key = ?1
LEFT JOIN tombstone ON tombstone.key = ?1 AND tombstone.id = ?2 AND tombstone.until > ?3
LEFT JOIN holder AS own ON own.key = ?1 AND own.id = ?2
