-- Takes an advisory lock for the rest of the transaction, unless that needs waiting, and leaves a mark that lives as long as
-- the transaction. In: $1 the lock's number; $2 the mark: number, whether shared, ms to wait (0: for ever), for
-- wait-xact.sql; {_shared} in the name or not. Out: granted, 'true' or 'false'; before, the mark that was there.
SELECT pg_try_advisory_xact_lock{_shared}($1::text::bigint)::text AS granted,
  current_setting('holdfast.advisory', true) AS before,
  set_config('holdfast.advisory', $2::text, true) AS mark
