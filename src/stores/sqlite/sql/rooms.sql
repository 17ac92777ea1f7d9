-- The next keys under a prefix that have a holder or are closed. A waiter waits for one of the two.
--   ?1 the prefix (inclusive)   ?2 the last key of the page before (exclusive)   ?3 how many
-- Two scans in the order of the key are merged, and end at the limit. Both begin at the larger bound: of two lower bounds SQLite
-- would seek to the first one, and so read every key before the cursor again for each page.
SELECT key FROM holder WHERE key >= max(?1, ?2) AND key <> ?2
UNION
SELECT key FROM closure WHERE key >= max(?1, ?2) AND key <> ?2
ORDER BY key
LIMIT ?3
