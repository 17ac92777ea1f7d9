-- Ends the connection of a wait that was given up, from another connection. Otherwise the wait would stay in the queue
-- until its time is over.
-- $1 its backend, $2 when the backend started
-- ended: true, or no row if the backend is gone
SELECT pg_terminate_backend(pid)::text AS ended
FROM pg_stat_get_activity($1::text::integer)
WHERE backend_start = $2::text::timestamptz
