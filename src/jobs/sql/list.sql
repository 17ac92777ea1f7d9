-- Jobs for people to look at, a page at a time, newest first.
-- Inputs: $1 their states, $2 their names, $3 their ids, $4 and $5 the time from which on and before which they were enqueued, $6 the
-- id before which the page begins, $7 its length, $8 whether to answer payloads, results and failed attempts, too. Null: any.
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
  'payload', case when $8::text::boolean then payload end,
  'result', case when $8::text::boolean then result end,
  'children', case when $8::text::boolean then to_json(coalesce(children, '{}')::text[]) end,
  'failedAttempts', case when $8::text::boolean then coalesce(failed_attempts, '[]') end
)::text as job
from (
  (
    select id, name, state, payload, priority, unique_key, group_key, group_limit, attempt, failures, max_attempts, worker, error, enqueued_at,
      started_at, due_at, null::timestamptz as ended_at, failed_attempts, progress, null::json as result, children
    from "{schema}".jobs
    where state = any ($1::text::text[])
      and ($2::text is null or name = any ($2::text::text[]))
      and ($3::text is null or id = any ($3::text::bigint[]))
      and ($4::text is null or enqueued_at >= $4::text::timestamptz)
      and ($5::text is null or enqueued_at < $5::text::timestamptz)
      and ($6::text is null or id < $6::text::bigint)
    order by id desc
    limit $7::text::bigint
  )
  union all
  (
    select id, name, state, payload, priority, unique_key, group_key, group_limit, attempt, failures, max_attempts, worker, error, enqueued_at,
      started_at, null, ended_at, failed_attempts, progress, result, children
    from "{schema}".ended_jobs
    where state = any ($1::text::text[])
      and ($2::text is null or name = any ($2::text::text[]))
      and ($3::text is null or id = any ($3::text::bigint[]))
      and ($4::text is null or enqueued_at >= $4::text::timestamptz)
      and ($5::text is null or enqueued_at < $5::text::timestamptz)
      and ($6::text is null or id < $6::text::bigint)
    order by id desc
    limit $7::text::bigint
  )
) page
order by id desc
limit $7::text::bigint
