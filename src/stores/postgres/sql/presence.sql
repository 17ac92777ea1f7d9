-- What a session runs beside LISTEN: it shares a lock for as long as it lives, which lock_is_deaf looks for. Where two inboxes have
-- the same number, one whose session has ended looks alive while the other session lives.
select pg_catalog.pg_advisory_lock_shared(1212236373, pg_catalog.hashtext('{inbox}'))
