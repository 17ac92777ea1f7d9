-- How many jobs were enqueued and how many ended, step by step. Steps begin at multiples of their length since 1970.
-- Inputs: $1 the names of the jobs or null for all, $2 the length of a step in ms, $3 how many steps; the last one has the present.
-- Result: one column, step, with a JSON object for each, oldest first. Instants are in ms since 1970, by this database's clock.
with bounds as materialized (
  select $2::text::bigint as step_ms,
    (floor(extract(epoch from clock_timestamp()) * 1000)::bigint / $2::text::bigint - $3::text::bigint + 1) * $2::text::bigint as first_ms
), events as (
  select enqueued_at as at, 'enqueued' as event, name from "{schema}".jobs
  union all
  select enqueued_at, 'enqueued', name from "{schema}".ended_jobs
  union all
  select ended_at, state, name from "{schema}".ended_jobs
), counted as (
  select (floor(extract(epoch from at) * 1000)::bigint - first_ms) / step_ms as step, event, count(*) as jobs
  from events, bounds
  where at >= (select to_timestamp(first_ms / 1000.0) from bounds) and ($1::text is null or name = any ($1::text::text[]))
  group by 1, 2
)
select json_build_object(
  'from', first_ms + n * step_ms,
  'enqueued', coalesce(sum(jobs) filter (where event = 'enqueued'), 0),
  'completed', coalesce(sum(jobs) filter (where event = 'completed'), 0),
  'dead', coalesce(sum(jobs) filter (where event = 'dead'), 0),
  'cancelled', coalesce(sum(jobs) filter (where event = 'cancelled'), 0),
  'superseded', coalesce(sum(jobs) filter (where event = 'superseded'), 0)
)::text as step
from bounds cross join generate_series(0, $3::text::bigint - 1) n left join counted on counted.step = n
group by n, first_ms, step_ms
order by n
