-- The last fencing token of advisory locks. One row serves all keys, so idle keys leave nothing behind. The fillfactor
-- leaves room in its page for new versions of the row, so they are cleaned up without a vacuum.
CREATE TABLE "{schema}".advisory_fence (
  id integer PRIMARY KEY CHECK (id = 1),
  fence bigint NOT NULL
) WITH (fillfactor = 10)
