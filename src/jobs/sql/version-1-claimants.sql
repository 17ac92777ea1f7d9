-- The functions of the jobs, version 1: which claims run beside which.
-- Inputs: none; "{schema}" is replaced by the name of the schema.
-- Result: none.

-- The advisory lock that a claimant's claims share until their ends.
create function "{schema}".jobs_claimant_lock(claimant text) returns bigint language sql immutable as $function$
  select hashtextextended('holdfast claims ' || claimant, 0)
$function$;

-- Takes that lock, and answers whether no other claim of the claimant has it. Others that begin later may have it too: they can
-- still see that this claim runs, whatever becomes of its answer.
create function "{schema}".jobs_claims_alone(claimant text) returns boolean language plpgsql
set search_path = "{schema}", pg_temp as $function$
declare
  key bigint := jobs_claimant_lock(claimant);
begin
  perform pg_advisory_xact_lock_shared(key);
  -- Given back in the same expression, so that no interruption leaves it with the session. Its own shared lock is not in its way.
  return case when pg_try_advisory_lock(key) then pg_advisory_unlock(key) else false end;
end
$function$;

-- Waits in line with the other claims ahead for jobs of these names: at once, each of them would step over the rows that the others have locked.
-- A transaction ends late where its claimant cannot read the answer, so the wait is short, and then the claim goes on all the same.
create function "{schema}".jobs_line_up(handled text[]) returns void language plpgsql
set search_path = "{schema}", pg_temp set lock_timeout = '100ms' as $function$
begin
  perform pg_advisory_xact_lock(hashtextextended('holdfast claims ahead ' || current_schema() || handled::text, 0));
exception when lock_not_available then
  null;
end
$function$;
