-- Gives back whatever this connection has locked: a wait that timed out may have been granted in the same moment.
SELECT pg_advisory_unlock_all()::text AS unlocked
