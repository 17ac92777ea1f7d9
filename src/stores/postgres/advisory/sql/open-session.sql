-- Prepares a connection of its own for holding an advisory lock.
-- $1 after how many seconds of silence the server is to ask whether this machine is still there, $2 how many seconds it
-- waits for each answer, $3 after how many ms without any it frees the lock
-- started: when its backend started, since the number of a process is used again
SELECT (SELECT backend_start::text FROM pg_stat_get_activity(pg_backend_pid())) AS started,
  set_config('tcp_keepalives_idle', $1::text, false) AS idle,
  set_config('tcp_keepalives_interval', $2::text, false) AS interval,
  set_config('tcp_keepalives_count', '3', false) AS count,
  set_config('tcp_user_timeout', $3::text, false) AS user_timeout,
  -- A session that holds is idle on purpose.
  set_config('idle_session_timeout', '0', false) AS idle_session_timeout,
  -- A fence that was given out must not be given out again after a crash.
  set_config('synchronous_commit', 'on', false) AS synchronous_commit
