-- Jobs for people to look at, a page at a time, newest first.
-- {not_ended} and {ended} are replaced by the conditions on each table. For a text with all conditions PostgreSQL would make one plan,
-- which would be the right one for few lists.
-- Inputs: $1 the length of the page, $2 whether to answer payloads, results and failed attempts, too; further ones of the conditions.
-- Result: one column, job, with a JSON object for each, largest id first. Instants are in ms since 1970, by this database's clock.
select json_build_object(
  'id', id::text, 'name', name, 'state', state, 'priority', priority, 'key', unique_key, 'group', group_key, 'groupLimit', group_limit,
  'attempt', attempt, 'failures', failures, 'maxAttempts', max_attempts, 'worker', worker, 'error', error,
  'enqueuedAt', floor(extract(epoch from enqueued_at) * 1000),
  'startedAt', floor(extract(epoch from started_at) * 1000),
  'dueAt', floor(extract(epoch from due_at) * 1000),
  'endedAt', floor(extract(epoch from ended_at) * 1000),
  'ageMs', greatest(0, floor(extract(epoch from clock_timestamp() - enqueued_at) * 1000)),
  'progress', progress,
  'payload', case when $2::text::boolean then payload end,
  'result', case when $2::text::boolean then result end,
  'children', case when $2::text::boolean then to_json(coalesce(children, '{}')::text[]) end,
  'failedAttempts', case when $2::text::boolean then coalesce(failed_attempts, '[]') end
)::text as job
from (
  (
    select id, name, state, payload, priority, unique_key, group_key, group_limit, attempt, failures, max_attempts, worker, error, enqueued_at,
      started_at, due_at, null::timestamptz as ended_at, failed_attempts, progress, null::json as result, children
    from "{schema}".jobs
    where {not_ended}
    order by id desc
    limit $1::text::bigint
  )
  union all
  (
    select id, name, state, payload, priority, unique_key, group_key, group_limit, attempt, failures, max_attempts, worker, error, enqueued_at,
      started_at, null, ended_at, failed_attempts, progress, result, children
    from "{schema}".ended_jobs
    where {ended}
    order by id desc
    limit $1::text::bigint
  )
) page
order by id desc
limit $1::text::bigint
