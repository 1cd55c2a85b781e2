-- What came of it: the report, the tasks of the last days, and what failed.
SELECT * FROM report ORDER BY day DESC LIMIT 7;
SELECT payload ->> 'day' AS day, status, attempt, result, last_error
FROM octop_tasks WHERE task_type = 'nightly_report' ORDER BY seq DESC LIMIT 7;
SELECT ended_at, attempt, outcome, error_class, error_message
FROM octop_latest_failures WHERE task_type = 'nightly_report';
