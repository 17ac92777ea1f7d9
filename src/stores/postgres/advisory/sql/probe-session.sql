-- Whether this very connection has the advisory lock.
-- $1 the lock's number, $2 whether the lock is shared
-- held: true | false
SELECT EXISTS (
  SELECT FROM pg_locks
  WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) | objid::bigint = $1::text::bigint AND objsubid = 1
    AND mode = CASE WHEN $2::text::boolean THEN 'ShareLock' ELSE 'ExclusiveLock' END
)::text AS held
