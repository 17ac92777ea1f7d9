-- Unlocks everything that this connection has locked. A wait that timed out may have been granted in the same moment.
SELECT pg_advisory_unlock_all()::text AS unlocked
