-- How many jobs there are.
-- Inputs: none.
-- Result: a row for each name and state: name, state, count, and the age in ms of the oldest job.
select name, state, count(*)::text as count,
  floor(extract(epoch from clock_timestamp() - min(enqueued_at)) * 1000)::text as oldest_ms
from (
  select name, state, enqueued_at from "{schema}".jobs
  union all
  select name, state, enqueued_at from "{schema}".ended_jobs
) every
group by name, state
order by name, state
