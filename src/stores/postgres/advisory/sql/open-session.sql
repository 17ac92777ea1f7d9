-- Prepares a connection for holding an advisory lock.
-- $1 after how many seconds of silence the server asks whether this machine is still there
-- $2 how many seconds the server waits for each answer
-- $3 after how many ms without any answer the server frees the lock
-- started: when the backend started, because the number of a process is used again
SELECT (SELECT backend_start::text FROM pg_stat_get_activity(pg_backend_pid())) AS started,
  set_config('tcp_keepalives_idle', $1::text, false) AS idle,
  set_config('tcp_keepalives_interval', $2::text, false) AS interval,
  set_config('tcp_keepalives_count', '3', false) AS count,
  set_config('tcp_user_timeout', $3::text, false) AS user_timeout,
  -- A session that holds is idle on purpose.
  set_config('idle_session_timeout', '0', false) AS idle_session_timeout,
  -- Otherwise a crash could lose the last fence, and a second holder would get the same one.
  set_config('synchronous_commit', 'on', false) AS synchronous_commit
