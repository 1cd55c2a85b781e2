-- Clock and ids. This group stands on no table, so the installer runs it before the migrations: tables use it in defaults.
-- Promise: the database clock is the only clock, read through _octop_now(). Production has no setting that bends it; tests
-- replace the function itself in their own throw-away database.

create or replace function _octop_now() returns timestamptz
  language sql stable parallel safe
begin atomic
  select now();
end;
comment on function _octop_now() is
  'The only clock: start of the transaction. Stable, so that a comparison with it stays an index condition. Tests replace this function.';

create or replace function octop_uuid7() returns uuid
  language sql volatile parallel safe
begin atomic
  select encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
              placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
      52, 1), 53, 1), 'hex')::uuid;
end;
comment on function octop_uuid7() is
  'A new time-ordered id (UUID version 7): 48 bits of milliseconds, then random bits. Needs no extension. Example: select octop_uuid7();';

create or replace function octop_uuid_time(id uuid) returns timestamptz
  language sql immutable strict parallel safe
begin atomic
  select to_timestamp((('x0000' || substr(translate(id::text, '-', ''), 1, 12))::bit(64)::bigint) / 1000.0);
end;
comment on function octop_uuid_time(uuid) is
  'The moment inside a version 7 id, exact to the millisecond. For other versions the answer has no meaning.';
