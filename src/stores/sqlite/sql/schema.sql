-- The tables of a lock file that is new or empty, made in one transaction.
--
-- Every number is REAL: both engines bind a JavaScript number as a double, which is exact for whole numbers to 2^53,
-- while an INTEGER column of a STRICT table refuses doubles from 2^51 on – and fences (µs since 1970) pass that in 2041.
-- Times in `…_at`, `…_until` and `since` are milliseconds of the store's clock, which starts anew with each boot.

-- One row. `boot` names the boot of the machine that all other rows belong to. The clock is that of the fences.
CREATE TABLE IF NOT EXISTS meta (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  boot TEXT NOT NULL,
  clock_ms REAL NOT NULL,
  clock_us REAL NOT NULL
) STRICT;

-- Tickets that hold, were offered the key, or are leaving. A free key has no row anywhere.
CREATE TABLE IF NOT EXISTS holder (
  key TEXT NOT NULL,
  id TEXT NOT NULL,
  units REAL NOT NULL,
  "limit" REAL NOT NULL,
  lock_delay_ms REAL NOT NULL,
  owner TEXT NOT NULL,
  inbox TEXT NOT NULL,
  fence REAL NOT NULL,
  since REAL NOT NULL,
  state TEXT NOT NULL,
  expires_at REAL NOT NULL,
  hold_until REAL NOT NULL,
  PRIMARY KEY (key, id)
) STRICT, WITHOUT ROWID;

-- The holders of a key that is no mutex, summed up and in order, so that no step has to read all of them: five thousand readers
-- made each renewal 40 times as slow. A mutex has no rows here.
CREATE TABLE IF NOT EXISTS crowd (
  key TEXT PRIMARY KEY,
  units REAL NOT NULL,
  -- The highest that any of them has had since the first one came.
  fence REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS crowd_by_end ON holder (key, expires_at) WHERE "limit" > 1;
CREATE INDEX IF NOT EXISTS crowd_by_limit ON holder (key, "limit") WHERE "limit" > 1;
CREATE TRIGGER IF NOT EXISTS crowd_joined AFTER INSERT ON holder WHEN new."limit" > 1 BEGIN
  INSERT INTO crowd VALUES (new.key, new.units, new.fence)
  ON CONFLICT (key) DO UPDATE SET units = units + new.units, fence = max(fence, new.fence);
END;
CREATE TRIGGER IF NOT EXISTS crowd_left AFTER DELETE ON holder WHEN old."limit" > 1 BEGIN
  UPDATE crowd SET units = units - old.units WHERE key = old.key;
  DELETE FROM crowd WHERE key = old.key AND units <= 0;
END;

-- Waiters, in order of arrival. One with a `group_name` was heard of when its group was, if that is later.
CREATE TABLE IF NOT EXISTS waiter (
  key TEXT NOT NULL,
  place REAL NOT NULL,
  id TEXT NOT NULL,
  units REAL NOT NULL,
  "limit" REAL NOT NULL,
  ttl_ms REAL NOT NULL,
  accept_ms REAL NOT NULL,
  min_hold_ms REAL NOT NULL,
  lock_delay_ms REAL NOT NULL,
  owner TEXT NOT NULL,
  inbox TEXT NOT NULL,
  since REAL NOT NULL,
  heard_at REAL NOT NULL,
  remembered_until REAL NOT NULL,
  -- Empty: none.
  group_name TEXT NOT NULL,
  PRIMARY KEY (key, place)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS waiter_by_id ON waiter (key, id);

-- How many wait for a key, so that a waiter that joins need not count all others: ten thousand arrivals took 30 seconds.
CREATE TABLE IF NOT EXISTS queue (
  key TEXT PRIMARY KEY,
  length REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS queue_joined AFTER INSERT ON waiter BEGIN
  INSERT INTO queue VALUES (new.key, 1) ON CONFLICT (key) DO UPDATE SET length = length + 1;
END;
CREATE TRIGGER IF NOT EXISTS queue_left AFTER DELETE ON waiter BEGIN
  DELETE FROM queue WHERE key = old.key AND length = 1;
  UPDATE queue SET length = length - 1 WHERE key = old.key;
END;

-- Waiters of one process for one key that are remembered by this one row: ten thousand waiters are 40 rows to write every two seconds.
-- All of them join in the transaction that makes the row. So while `changed` is 0, every waiter that was ever in the group still waits.
-- The row goes with the last waiter.
CREATE TABLE IF NOT EXISTS wait_group (
  key TEXT NOT NULL,
  name TEXT NOT NULL,
  size REAL NOT NULL,
  -- 1 as soon as a waiter has left, in whatever way.
  changed REAL NOT NULL,
  inbox TEXT NOT NULL,
  heard_at REAL NOT NULL,
  remembered_until REAL NOT NULL,
  PRIMARY KEY (key, name)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS group_left AFTER DELETE ON waiter WHEN old.group_name <> '' BEGIN
  UPDATE wait_group SET size = size - 1, changed = 1 WHERE key = old.key AND name = old.group_name;
  DELETE FROM wait_group WHERE key = old.key AND name = old.group_name AND size <= 0;
END;
CREATE TRIGGER IF NOT EXISTS group_changed AFTER UPDATE OF group_name ON waiter WHEN old.group_name <> '' BEGIN
  UPDATE wait_group SET size = size - 1, changed = 1 WHERE key = old.key AND name = old.group_name;
  DELETE FROM wait_group WHERE key = old.key AND name = old.group_name AND size <= 0;
END;

-- Ids that were cancelled or evicted lately.
CREATE TABLE IF NOT EXISTS tombstone (
  key TEXT NOT NULL,
  id TEXT NOT NULL,
  until REAL NOT NULL,
  evicted REAL NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (key, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tombstone_by_end ON tombstone (until);

-- Keys that a lock-delay keeps closed.
CREATE TABLE IF NOT EXISTS closure (
  key TEXT PRIMARY KEY,
  until REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS closure_by_end ON closure (until);
