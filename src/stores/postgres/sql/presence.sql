-- The statement that a session runs beside LISTEN. It shares a lock for as long as it lives, and lock_is_unreached
-- looks for that lock. If two inboxes have the same number, the inbox whose session has ended looks alive while the
-- other session lives.
select pg_catalog.pg_advisory_lock_shared(1212236373, pg_catalog.hashtext('{inbox}'))
