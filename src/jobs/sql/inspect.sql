-- Jobs for people to look at, a page at a time.
-- Inputs: $1 their states, $2 their names or null for all, $3 one id or null, $4 the id after which the page begins, $5 its length.
-- Result: one column, job, with a JSON object for each, in order of ids. Instants are in ms since 1970, by this database's clock.
select json_build_object(
  'id', id::text, 'name', name, 'state', state, 'payload', payload, 'priority', priority, 'key', unique_key, 'group', group_key,
  'attempt', attempt, 'failures', failures, 'maxAttempts', max_attempts, 'worker', worker, 'error', error,
  'enqueuedAt', floor(extract(epoch from enqueued_at) * 1000),
  'startedAt', floor(extract(epoch from started_at) * 1000),
  'dueAt', floor(extract(epoch from due_at) * 1000),
  'finishedAt', floor(extract(epoch from finished_at) * 1000),
  'ageMs', greatest(0, floor(extract(epoch from clock_timestamp() - enqueued_at) * 1000))
)::text as job
from (
  select id, name, state, payload, priority, unique_key, group_key, attempt, failures, max_attempts, worker, error, enqueued_at,
    started_at, due_at, null::timestamptz as finished_at
  from "{schema}".jobs
  union all
  select id, name, state, payload, priority, unique_key, group_key, attempt, failures, max_attempts, worker, error, enqueued_at,
    started_at, null, finished_at
  from "{schema}".finished_jobs
) every
where state = any ($1::text::text[])
  and ($2::text is null or name = any ($2::text::text[]))
  and ($3::text is null or id = $3::text::bigint)
  and id > $4::text::bigint
order by id
limit $5::text::bigint
