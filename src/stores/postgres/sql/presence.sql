-- Shares a lock of the session for as long as it lives, so that others see in lock_is_deaf when nobody listens to the inbox any more.
-- Two inboxes with the same number only look alive for longer.
select pg_catalog.pg_advisory_lock_shared(1212236373, pg_catalog.hashtext('{inbox}'))
