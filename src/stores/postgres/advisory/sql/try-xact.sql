-- Takes an advisory lock for the rest of the transaction, unless that needs waiting, and leaves a mark that lives as long
-- as the transaction: outside of one it is gone with this statement. The mark is also what wait-xact.sql works on.
-- $1 the lock's number, $2 whether it is shared, $3 how long wait-xact.sql is to wait, in ms (0: without end)
-- granted: true | false; known: whether a mark was there before, which proves that this is a transaction
SELECT
  (CASE WHEN $2::text::boolean THEN pg_try_advisory_xact_lock_shared($1::text::bigint)
        ELSE pg_try_advisory_xact_lock($1::text::bigint) END)::text AS granted,
  -- Parts of a CASE are evaluated in order: the old mark is looked at before the new one is made.
  (CASE WHEN coalesce(current_setting('holdfast.advisory', true), '') <> ''
        THEN set_config('holdfast.advisory', concat_ws(' ', $1::text, $2::text, $3::text), true) <> ''
        ELSE set_config('holdfast.advisory', concat_ws(' ', $1::text, $2::text, $3::text), true) = '' END)::text AS known
