-- After the commit, for who reads what psql says: psql -q says nothing else.
do $octop_done$
begin
  raise notice 'octop: % is installed in schema %', :'version', :'schema';
end $octop_done$;
