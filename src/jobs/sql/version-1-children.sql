-- The functions of the jobs, version 1: jobs that wait for their children.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- The end of a child changes nothing of its parents, because it would have to lock them. It leaves a note with the child: tell_at. The
-- next claim reads the notes, and makes those parents ready that wait for nothing any more.

-- Locks the children, so that none ends or comes back meanwhile, and has their ends noted. Answers those that are not there.
create function "{schema}".jobs_lock_children(own_children bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  locked bigint[];
begin
  -- While this waits for a lock, a child may end, or be tried again. Then it is in the other table at the next round.
  for round in 1..3 loop
    perform from jobs where id = any (own_children) order by id for update;
    perform from ended_jobs where id = any (own_children) order by id for update;
    locked := array(
      select id from jobs where id = any (own_children) union all select id from ended_jobs where id = any (own_children)
    );
    exit when own_children <@ locked;
  end loop;
  update jobs set followed = true where id = any (own_children) and not followed;
  return array(select id from unnest(own_children) as id where id <> all (locked));
end
$function$;

-- Whether a job has to wait for one of these children. The caller has locked them.
create function "{schema}".jobs_waits_for(own_children bigint[], policy text) returns boolean language sql
set search_path = "{schema}", pg_temp set enable_seqscan = off as $function$
  select exists (select from jobs where id = any (own_children))
    or (policy <> 'run' and exists (select from ended_jobs where id = any (own_children) and state <> 'completed'))
$function$;

-- Records the children of a job. The caller has locked them.
create function "{schema}".jobs_add_children(of_parent bigint, own_children bigint[], policy text) returns void language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
begin
  insert into job_children (child, parent, done)
  select id, of_parent, false from jobs where id = any (own_children)
  union all
  select id, of_parent, state = 'completed' or policy = 'run' from ended_jobs where id = any (own_children);
  if policy = 'cancel' then
    update ended_jobs set tell_at = clock_timestamp() where id = any (own_children) and state <> 'completed';
  end if;
end
$function$;

-- Reads the notes of up to 1,000 children that have ended. Answers whether there may be more.
create function "{schema}".jobs_tell_parents(asked_at timestamptz) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  told bigint[];
  parents bigint[];
  held bigint[];
  failed record;
  job jobs;
  is_long boolean;
  woken text[];
begin
  select coalesce(array_agg(id), '{}') into told from (
    select id from ended_jobs where tell_at <= asked_at order by tell_at limit 1000 for update skip locked
  ) ended;
  is_long := cardinality(told) = 1000;
  -- Locked, because two claims that tell a parent of two children would each see the child of the other as not done.
  select coalesce(array_agg(id), '{}') into parents from (
    select id from jobs where state = 'pending' and id in (
      select parent from job_children where child = any (told) and not done
    ) for update skip locked
  ) waiting;
  -- Another transaction has these parents. Looked at again after a second. Otherwise every claim would try it.
  held := array(select distinct child from job_children where child = any (told) and not done and parent <> all (parents));
  update ended_jobs set tell_at = clock_timestamp() + interval '1 s' where id = any (held);
  told := array(select id from unnest(told) as id where id <> all (held));

  update job_children c set done = true from ended_jobs e, jobs p
  where c.child = any (told) and not c.done and e.id = c.child and p.id = c.parent
    and (e.state = 'completed' or p.if_child_fails = 'run');
  for failed in
    select distinct on (c.parent) c.parent, e.id, e.name, e.state
    from job_children c join ended_jobs e on e.id = c.child join jobs p on p.id = c.parent
    where c.child = any (told) and not c.done and p.if_child_fails = 'cancel' and p.state = 'pending'
    order by c.parent, e.id
  loop
    select * into job from jobs where id = failed.parent;
    perform jobs_end(job, 'cancelled', format('Its child %s (%s) is %s.', failed.id, failed.name, failed.state));
    -- It may be a child itself.
    is_long := true;
  end loop;

  with free as (
    update jobs p set state = case when p.due_at > asked_at then 'delayed' else 'ready' end,
      due_at = case when p.due_at > asked_at then p.due_at end, ready_at = greatest(p.due_at, asked_at)
    where p.id = any (parents) and p.state = 'pending'
      and not exists (select from job_children c where c.parent = p.id and not c.done)
    returning p.name
  )
  select array_agg(distinct name) into woken from free;
  perform pg_notify('holdfast_jobs', name) from unnest(woken) as name;
  update ended_jobs set tell_at = null where id = any (told);
  return is_long;
end
$function$;

-- Wakes the workers of the parents: one of their claims reads the note.
create function "{schema}".jobs_child_ended() returns trigger language plpgsql set search_path = "{schema}", pg_temp as $function$
begin
  perform pg_notify('holdfast_jobs', name) from (
    select distinct p.name from job_children c join jobs p on p.id = c.parent where c.child = new.id
  ) parents;
  return null;
end
$function$;

create trigger ended_jobs_noted after insert on "{schema}".ended_jobs for each row when (new.tell_at is not null)
  execute function "{schema}".jobs_child_ended();

create function "{schema}".jobs_parent_ended() returns trigger language plpgsql set search_path = "{schema}", pg_temp as $function$
begin
  delete from job_children where child = any (old.children) and parent = old.id;
  return null;
end
$function$;

create trigger jobs_without_children after delete on "{schema}".jobs for each row when (old.children is not null)
  execute function "{schema}".jobs_parent_ended();
