-- The next keys under a prefix, for inspect.
--
-- Inputs  $1 the prefix · $2 the last key of the page before, or nothing · $3 how many rooms
-- Result  a row for each key
with asked as (
  select ($1::text) collate "C" as prefix, ($2::text) collate "C" as last, $3::text::bigint as count
)
select key from (
  (select distinct key from "{schema}".lock_holders, asked
    where key >= prefix and starts_with(key, prefix) and (last is null or key > last) order by key
    limit (select count from asked))
  union
  (select distinct key from "{schema}".lock_waiters, asked
    where key >= prefix and starts_with(key, prefix) and (last is null or key > last) order by key
    limit (select count from asked))
  union
  (select key from "{schema}".lock_closures, asked
    where key >= prefix and starts_with(key, prefix) and (last is null or key > last) order by key
    limit (select count from asked))
) as keys order by key limit (select count from asked)
