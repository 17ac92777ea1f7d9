-- The next fencing token, for a process that has just been granted an advisory lock. It is larger than every token
-- before, also after the clock was set back. It is also larger than the tokens of another store that the key may have
-- been in.
-- fence: a whole number
INSERT INTO "{schema}".advisory_fence AS given (id, fence)
VALUES (1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (id) DO UPDATE SET fence = greatest(given.fence + 1, excluded.fence)
RETURNING fence::text AS fence
