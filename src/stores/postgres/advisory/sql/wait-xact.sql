-- Waits for the advisory lock that the mark of try-xact.sql names, and appends `granted` or `timeout` to the mark.
--
-- A time-out rolls back the inner block alone, and reaches the client as an answer and not as an error. So the caller's
-- transaction stays usable, also with clients that give up a transaction at its first error.
--
-- It takes no parameters, because DO has none. Its text is the same for every key, because each text is an entry of
-- pg_stat_statements.
DO $$
DECLARE
  mark constant text := current_setting('holdfast.advisory', true);
  asked constant text[] := string_to_array(mark, ' ');
  lock_timeout_before constant text := current_setting('lock_timeout');
BEGIN
  -- No mark: this is no transaction. Four words: another call on this transaction has come in between.
  IF cardinality(asked) IS DISTINCT FROM 3 THEN RETURN; END IF;
  BEGIN
    PERFORM set_config('lock_timeout', asked[3], true);
    IF asked[2]::boolean THEN PERFORM pg_advisory_xact_lock_shared(asked[1]::bigint);
    ELSE PERFORM pg_advisory_xact_lock(asked[1]::bigint);
    END IF;
    PERFORM set_config('lock_timeout', lock_timeout_before, true);
    PERFORM set_config('holdfast.advisory', mark || ' granted', true);
  EXCEPTION WHEN lock_not_available THEN
    PERFORM set_config('holdfast.advisory', mark || ' timeout', true);
  END;
END
$$
