-- Takes an advisory lock for the rest of the transaction, unless that needs waiting. Leaves a mark for wait-xact.sql,
-- which lives as long as the transaction.
-- {_shared} in the name of the function for a shared lock, nothing for an exclusive one
-- $1 the lock's number, $2 the mark: the number, whether the lock is shared, ms to wait (0: for ever)
-- granted: 'true' or 'false', before: the mark that was there
SELECT pg_try_advisory_xact_lock{_shared}($1::text::bigint)::text AS granted,
  current_setting('holdfast.advisory', true) AS before,
  set_config('holdfast.advisory', $2::text, true) AS mark
