-- The functions of the jobs, version 1: jobs that wait for their children.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.
--
-- The end of a child changes nothing of its parents, because it would have to lock them. It leaves a note with the child: tell_at. The
-- next claim reads the notes, and makes those parents ready that wait for nothing any more.

-- Locks the children, so that none ends or comes back meanwhile. They may begin to run, and the leases of those that run are renewed:
-- that locks their rows for no key update, which goes beside this lock. Answers those that are not there.
create function "{schema}".jobs_lock_children(own_children bigint[]) returns bigint[] language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan as $function$
declare
  locked bigint[];
begin
  -- While this waits for a lock, a child may end, or be tried again. Then it is in the other table at the next round.
  for round in 1..3 loop
    perform from jobs where id = any (own_children) order by id for key share;
    perform from ended_jobs where id = any (own_children) order by id for update;
    locked := array(
      select id from jobs where id = any (own_children) union all select id from ended_jobs where id = any (own_children)
    );
    exit when own_children <@ locked;
  end loop;
  return array(select id from unnest(own_children) as id where id <> all (locked));
end
$function$;

-- Those of the ended jobs whose ends are to be noted for parents. The caller has locked them, maybe in the same statement: this function is
-- volatile, so it sees what was committed before it is called. A transaction with one snapshot for all of its statements does not see
-- parents that were committed after it began. So it leaves a note with each job.
create function "{schema}".jobs_followed(ended bigint[]) returns bigint[] language plpgsql as $function$
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    return ended;
  end if;
  return array(select c.child from "{schema}".job_children c where c.child = any (ended));
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

-- Reads notes of children that have ended, and tells up to 1,000 times a parent of its child. Answers whether there may be more.
-- The joins are in the order in which few rows are read, whatever the statistics of these tables say: they are empty mostly.
create function "{schema}".jobs_tell_parents(asked_at timestamptz) returns boolean language plpgsql
set search_path = "{schema}", pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set join_collapse_limit = 1 set plan_cache_mode = force_generic_plan as $function$
declare
  told bigint[];
  -- Pairs of a child and its parent, and whether the parent need not wait for the child any more. If not, it is to be cancelled.
  of_children bigint[];
  parents bigint[];
  are_done boolean[];
  -- Children with parents that are not told yet.
  untold bigint[];
  failed record;
  job jobs;
  is_more boolean;
  woken text[];
begin
  select coalesce(array_agg(id), '{}') into told from (
    select id from ended_jobs where tell_at <= asked_at order by tell_at limit 1000 for update skip locked
  ) ended;
  -- Locked, because two claims that tell a parent of two children would each see the child of the other as not done.
  select coalesce(array_agg(child), '{}'), coalesce(array_agg(parent), '{}'), coalesce(array_agg(is_done), '{}')
  into of_children, parents, are_done from (
    select c.child, c.parent, e.state = 'completed' or p.if_child_fails = 'run' as is_done
    from unnest(told) as t (id) join ended_jobs e on e.id = t.id
    join job_children c on c.child = e.id and not c.done join jobs p on p.id = c.parent
    where p.state = 'pending' and (e.state = 'completed' or p.if_child_fails <> 'wait') limit 1000 for update of p skip locked
  ) waiting;
  is_more := cardinality(told) = 1000 or cardinality(parents) = 1000;

  update job_children c set done = true from unnest(of_children, parents, are_done) as told_of (child, parent, is_done)
  where told_of.is_done and c.child = told_of.child and c.parent = told_of.parent;
  for failed in
    select distinct on (told_of.parent) told_of.parent, e.id, e.name, e.state
    from unnest(of_children, parents, are_done) as told_of (child, parent, is_done) join ended_jobs e on e.id = told_of.child
    where not told_of.is_done order by told_of.parent, e.id
  loop
    select * into job from jobs where id = failed.parent;
    perform jobs_end(job, 'cancelled', format('Its child %s (%s) is %s.', failed.id, failed.name, failed.state));
    -- It may be a child itself.
    is_more := true;
  end loop;

  with free as (
    update jobs p set state = case when p.due_at > asked_at then 'delayed' else 'ready' end,
      due_at = case when p.due_at > asked_at then p.due_at end, ready_at = greatest(p.due_at, asked_at)
    where p.id = any (parents) and p.state = 'pending'
      and not exists (select from job_children c where c.parent = p.id and not c.done)
    returning p.name
  )
  select array_agg(distinct name) into woken from free;
  perform jobs_notify('holdfast_jobs', name) from unnest(woken) as name;
  -- The others are told by the next claim. Or another transaction has them: otherwise every claim of the next second would try.
  untold := array(
    select t.id from unnest(told) as t (id) where exists (
      select from ended_jobs e join job_children c on c.child = e.id and not c.done join jobs p on p.id = c.parent
      where e.id = t.id and (e.state = 'completed' or p.if_child_fails <> 'wait')
    )
  );
  update ended_jobs
  set tell_at = case when id <> all (untold) then null when is_more then tell_at else clock_timestamp() + interval '1 s' end
  where id = any (told);
  return is_more;
end
$function$;

-- Wakes workers of some of the parents: one of their claims reads the note.
create function "{schema}".jobs_child_ended() returns trigger language plpgsql set search_path = "{schema}", pg_temp as $function$
begin
  perform jobs_notify('holdfast_jobs', name) from (
    select distinct p.name from (select parent from job_children where child = new.id and not done limit 100) c
    join jobs p on p.id = c.parent
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
