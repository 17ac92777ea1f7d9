-- Drops the holder of a mutex that nobody waits for, as the law would. If the law would do more, it writes nothing.
-- A mutex has no other holder. The others of a key that is no mutex may have expired, and the law would look at them.
--   ?1 key   ?2 id   ?3 now   ?4 the least fence that a later grant may have
DELETE FROM holder
WHERE key = ?1 AND id = ?2 AND "limit" = 1 AND state = 'held' AND expires_at > ?3 AND hold_until <= ?3
  -- The next fence of the key is higher, although nothing of this holder is left.
  AND fence < ?4
  AND NOT EXISTS (SELECT 1 FROM waiter WHERE key = ?1)
