-- The functions of the jobs, version 1: what becomes of a job, for those who wait for it.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

create function "{schema}".jobs_notify_watchers() returns trigger language plpgsql as $function$
begin
  perform "{schema}".jobs_notify('holdfast_jobs_changed', old.id::text);
  return null;
end
$function$;

-- The condition is checked before the function is called, so a job for which nobody waits costs no call.
create trigger jobs_watched after update or delete on "{schema}".jobs for each row when (old.watched)
  execute function "{schema}".jobs_notify_watchers();

-- From now on each change of these jobs is notified. Answers the ids of those that another transaction has locked: ask again.
create function "{schema}".jobs_watch(ids bigint[]) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
begin
  update jobs set watched = true where id in (
    select id from jobs where id = any (ids) and not watched for no key update skip locked
  );
  return (select coalesce(json_agg(id::text), '[]') from jobs where id = any (ids) and not watched);
end
$function$;

-- Stores the progress of attempts: [{ id, attempt, progress }], where progress is a JSON text of its own. Answers { gone, skipped }, both
-- [{ id, attempt }]. gone: attempts that are not the ones that run. skipped: those of jobs that another transaction has locked.
create function "{schema}".jobs_report(entries json) returns json language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  answer json;
  stored bigint[];
begin
  with held as (
    select j.id, e.progress from json_to_recordset(entries) as e (id bigint, attempt integer, progress text)
    join jobs j on j.id = e.id and j.attempt = e.attempt and coalesce(j.state = 'running', false)
    for no key update of j skip locked
  ), written as (
    update jobs j set progress = held.progress::json from held where j.id = held.id returning j.id
  )
  select coalesce(array_agg(id), '{}') into stored from written;
  select json_build_object(
    'gone', coalesce(json_agg(attempts) filter (where is_gone), '[]'),
    'skipped', coalesce(json_agg(attempts) filter (where not is_gone and not id = any (stored)), '[]')
  ) into answer
  from (
    select e.id, json_build_object('id', e.id::text, 'attempt', e.attempt) as attempts, j.id is null as is_gone
    from json_to_recordset(entries) as e (id bigint, attempt integer)
    left join jobs j on j.id = e.id and j.attempt = e.attempt and coalesce(j.state = 'running', false)
  ) as asked;
  return answer;
end
$function$;
