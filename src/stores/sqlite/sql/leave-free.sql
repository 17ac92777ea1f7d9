-- Drops the holder of a mutex that nobody waits for, as the law would. If the law would do more, it writes nothing.
-- A mutex has no other holder. The others of a key that is no mutex may have expired, and the law would look at them.
--   ?1 key   ?2 id   ?3 now   ?4 the time of the fence clock   ?5 and ?6 the moment of the fence clock from which that was computed
DELETE FROM holder
WHERE key = ?1 AND id = ?2 AND "limit" = 1 AND state = 'held' AND expires_at > ?3 AND hold_until <= ?3
  -- The next fence of the key is higher, although nothing of this holder is left.
  AND fence < ?4
  AND EXISTS (SELECT 1 FROM meta WHERE clock_ms = ?5 AND clock_us = ?6)
  AND NOT EXISTS (SELECT 1 FROM waiter WHERE key = ?1)
