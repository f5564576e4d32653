-- A role that reads Tilewise's views and nothing else. Run with psql, as the owner of the database,
-- who needs the right to make roles:
--   psql -d tilewise -v password=SECRET -f read_only_role.sql
-- -v role=NAME makes a role of another name. Run it again after an upgrade that adds views.
\set ON_ERROR_STOP on
\if :{?role}
\else
  \set role tilewise_read
\endif

SELECT format('CREATE ROLE %I LOGIN', :'role')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
\if :{?password}
  ALTER ROLE :"role" PASSWORD :'password';
\endif
-- A slip of the hand changes nothing, and a slow query ends.
ALTER ROLE :"role" SET default_transaction_read_only = on;
ALTER ROLE :"role" SET statement_timeout = '30s';

SELECT format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), :'role') \gexec
GRANT USAGE ON SCHEMA public TO :"role";
GRANT SELECT
  ON best_schedules, trial_history, job_progress, failures, machine_activity, proofs,
    suite_history, schedule_history, best_ranges
  TO :"role";
