-- The next keys under a prefix that have a holder or are closed. A waiter waits for one of the two.
--   ?1 the prefix (inclusive)   ?2 the last key of the page before (exclusive)   ?3 how many
SELECT key FROM (
  SELECT key FROM holder WHERE key >= ?1 AND key > ?2
  UNION
  SELECT key FROM closure WHERE key >= ?1 AND key > ?2
)
ORDER BY key
LIMIT ?3
