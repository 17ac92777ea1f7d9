-- The functions of the jobs, version 1: how many wait, for metrics.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- How many jobs of each name wait, are blocked, delayed or dead, and since when. Reads no more than `most` jobs of each name and state
-- by an index, so a million jobs cost no more than `most`.
--   ready     with those that are due although no worker has noticed yet, and those whose lease has ended
--   blocked   among the first `most` waiting jobs that have a group
--   delayed   the next `most` of all names
--   dead      the latest `most` of all names
-- Answers [{ name, state, count, oldestMs, isMore }]. oldestMs: how long the oldest one has waited; null for delayed and dead. It is the
-- oldest one of the first 100 of each priority, which are the next ones. isMore: there are more than were counted.
-- The time is that of the statement, because a volatile function would be no condition of an index.
create function "{schema}".jobs_backlog(most integer) returns json language sql stable
set search_path = "{schema}", pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $function$
  with recursive pair as (
    (select name, priority from jobs where state = 'ready' order by name, priority desc limit 1)
    union all
    select next.name, next.priority from pair p cross join lateral (
      (
        select j.name, j.priority from jobs j where j.state = 'ready' and j.name = p.name and j.priority < p.priority
        order by j.priority desc limit 1
      )
      union all
      (select j.name, j.priority from jobs j where j.state = 'ready' and j.name > p.name order by j.name, j.priority desc limit 1)
      limit 1
    ) next
  ), claimable as (
    select p.name, min(first.ready_at) as since
    from (select * from pair limit 1000) p cross join lateral (
      select j.ready_at from jobs j where j.state = 'ready' and j.name = p.name and j.priority = p.priority order by j.id limit 100
    ) first
    group by p.name
  ), due as (
    (
      select name, ready_at as since from jobs
      where state = 'delayed' and due_at <= statement_timestamp() order by due_at limit most
    )
    union all
    (
      select name, due_at from jobs
      where state = 'running' and due_at <= statement_timestamp() order by due_at limit most
    )
  ), waiting as (
    select name, count(*) as jobs, min(since) as since from (
      select c.name, c.since from claimable c cross join lateral (
        select from jobs j where j.state = 'ready' and j.name = c.name limit most
      ) each
      union all
      select name, since from due
    ) every
    group by name
  ), blocked as (
    select name, count(*) as jobs, min(ready_at) as since from (
      select name, state, ready_at from jobs where group_key is not null and state in ('ready', 'blocked') limit most
    ) grouped
    where state = 'blocked' group by name
  ), delayed as (
    select name, count(*) as jobs, sum(count(*)) over () as every from (
      select name from jobs where state = 'delayed' and due_at > statement_timestamp()
      order by due_at limit most
    ) later
    group by name
  ), dead as (
    select name, count(*) as jobs, sum(count(*)) over () as every from (
      select name from ended_jobs where state = 'dead' order by id desc limit most
    ) latest
    group by name
  )
  select coalesce(json_agg(json_build_object(
    'name', name, 'state', state, 'count', jobs,
    'oldestMs', case when since is not null then greatest(0, floor(extract(epoch from statement_timestamp() - since) * 1000)) end,
    'isMore', is_more
  ) order by name, state), '[]')
  from (
    select name, 'ready' as state, jobs, since, jobs >= most as is_more from waiting
    union all
    select name, 'blocked', jobs, since, jobs >= most from blocked
    union all
    select name, 'delayed', jobs, null, every >= most from delayed
    union all
    select name, 'dead', jobs, null, every >= most from dead
  ) found
$function$;
