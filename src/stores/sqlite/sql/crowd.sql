-- What the law asks about the other holders of a key, if they are no mutex. Always one row. The indices make it take the same time
-- however many holders there are.
--   ?1 key   ?2 id of the ticket   ?3 now
-- The units of holders whose time is over, which are then read one by one. The smallest limit and the first expiry of the rest.
SELECT
  (
    SELECT ifnull(sum(units), 0) FROM holder INDEXED BY crowd_by_end
    WHERE key = ?1 AND "limit" > 1 AND expires_at <= ?3 AND id <> ?2
  ),
  (
    SELECT "limit" FROM holder INDEXED BY crowd_by_limit
    WHERE key = ?1 AND "limit" > 1 AND expires_at > ?3 AND id <> ?2 ORDER BY "limit" LIMIT 1
  ),
  (
    SELECT expires_at FROM holder INDEXED BY crowd_by_end
    WHERE key = ?1 AND "limit" > 1 AND expires_at > ?3 AND id <> ?2 ORDER BY expires_at LIMIT 1
  )
