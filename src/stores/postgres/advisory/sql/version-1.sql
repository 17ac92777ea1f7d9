-- Where the last fencing token of advisory locks is kept: in one row for all keys, so that idle keys leave nothing behind.
-- With room for new versions of it in its page (fillfactor), so that it is cleaned up without a vacuum.
CREATE TABLE "{schema}".advisory_fence (
  id integer PRIMARY KEY CHECK (id = 1),
  fence bigint NOT NULL
) WITH (fillfactor = 10)
