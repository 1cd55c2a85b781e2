-- What the migrations made is there: the functions need it, and a migration never runs twice.
do $octop_whole$
declare
  v_missing text := (select string_agg(t, ', ' order by n) from unnest(string_to_array(:'tables', ',')) with ordinality u (t, n)
                      where not exists (select from pg_class c join pg_namespace s on s.oid = c.relnamespace
                                         where s.nspname = :'schema' and c.relname = t and c.relkind in ('r', 'p', 'S')));
begin
  if v_missing is not null then
    raise exception 'octop: schema % lacks what was installed there: %', :'schema', v_missing
      using errcode = '55000', hint = 'Look for a backup of it. octop doctor --only schema prints the statements that make it again, empty. Nothing was changed.';
  end if;
end $octop_whole$;
