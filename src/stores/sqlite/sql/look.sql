-- What the law needs to know about a key to decide about one ticket, without the queue and the crowd. Always one row.
--   ?1 key   ?2 id of the ticket   ?3 now
-- Any one of the other holders. If it is a mutex, it is the only one. Otherwise crowd.sql sums up all of them.
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
  other."limit",
  other.expires_at,
  ifnull(other.fence, 0),
  ifnull(crowd.units, 0),
  ifnull(crowd.fence, 0),
  tombstone.evicted,
  tombstone.reason
FROM meta
LEFT JOIN closure ON closure.key = ?1
LEFT JOIN crowd ON crowd.key = ?1
LEFT JOIN tombstone ON tombstone.key = ?1 AND tombstone.id = ?2 AND tombstone.until > ?3
LEFT JOIN holder AS own ON own.key = ?1 AND own.id = ?2
LEFT JOIN holder AS other ON other.key = ?1 AND other.id <> ?2
LIMIT 1
