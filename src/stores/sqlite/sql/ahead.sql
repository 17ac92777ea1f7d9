-- How many wait in front of a waiter. No row if it does not wait.
--   ?1 key   ?2 id of the waiter
-- The last one, as each is that has just joined, takes it from the length of the queue. Any other has come back, and counts.
SELECT
  CASE WHEN EXISTS (SELECT 1 FROM waiter WHERE key = ?1 AND place > own.place)
    THEN (SELECT count(*) FROM waiter WHERE key = ?1 AND place < own.place)
    ELSE (SELECT length - 1 FROM queue WHERE key = ?1)
  END
FROM waiter AS own
WHERE key = ?1 AND id = ?2
