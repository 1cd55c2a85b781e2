-- The task of last night. Its id follows from the day: however often this runs, there is one task a day.
SELECT id, created
FROM octop_enqueue('nightly_report',
                   jsonb_build_object('day', current_date - 1),
                   queue => 'reports',
                   max_retries => 5,
                   tags => '{nightly}',
                   id => md5('nightly_report ' || (current_date - 1))::uuid);
