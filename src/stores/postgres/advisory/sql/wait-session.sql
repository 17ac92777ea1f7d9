-- Waits for an advisory lock. Fails with 55P03 when the time is over; the connection may have the lock even then.
-- $1 the lock's number, $2 whether the lock is shared, $3 how long to wait, in ms
-- The parts of a CASE are evaluated in order, so the time limit is set before the wait begins. It ends with the statement, so
-- the next one may wait longer for the row of the fence.
SELECT CASE WHEN set_config('lock_timeout', $3::text, true) IS NULL THEN NULL
            WHEN $2::text::boolean THEN pg_advisory_lock_shared($1::text::bigint)::text
            ELSE pg_advisory_lock($1::text::bigint)::text END AS granted
