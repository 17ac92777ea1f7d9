-- Takes an advisory lock for as long as the connection lives, unless that needs waiting.
-- $1 the lock's number, $2 whether the lock is shared
-- granted: true | false
SELECT (CASE WHEN $2::text::boolean THEN pg_try_advisory_lock_shared($1::text::bigint)
             ELSE pg_try_advisory_lock($1::text::bigint) END)::text AS granted
