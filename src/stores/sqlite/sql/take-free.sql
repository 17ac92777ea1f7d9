-- Takes a key that has no holder, no waiter and no lock-delay, as the law would. Otherwise it writes nothing.
-- INSERT … SELECT would put the row into a table in memory first, as RETURNING would: each takes longer than all conditions together.
--   ?1 key   ?2 id   ?3 units   ?4 limit   ?5 lock_delay_ms   ?6 owner   ?7 inbox   ?8 fence   ?9 now   ?10 expires_at
--   ?11 hold_until   ?12 and ?13 the moment of the fence clock from which the fence was computed
INSERT OR IGNORE INTO holder VALUES (
  ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
  -- The state. If it is null, the row is ignored.
  CASE WHEN EXISTS (SELECT 1 FROM meta WHERE clock_ms = ?12 AND clock_us = ?13)
    AND NOT EXISTS (SELECT 1 FROM holder WHERE key = ?1)
    AND NOT EXISTS (SELECT 1 FROM waiter WHERE key = ?1)
    AND NOT EXISTS (SELECT 1 FROM closure WHERE key = ?1)
    AND NOT EXISTS (SELECT 1 FROM tombstone WHERE key = ?1 AND id = ?2 AND until > ?9)
  THEN 'held' END,
  ?10, ?11
)
