-- Which of these keys have a room that another call has locked at this moment. The locks that this takes end with the statement.
-- $1 the keys
select key from pg_catalog.unnest($1::text::text[]) as key
where not pg_catalog.pg_try_advisory_xact_lock_shared(1212236372, pg_catalog.hashtext(key) operator(pg_catalog.&) 1023)
