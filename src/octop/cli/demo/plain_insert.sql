-- What anybody may type in psql: a task is a row. The id is given here so that the demo finds it again; else it is made.
insert into octop_tasks (id, task_type, payload) values (%s, 'greet', '{"name": "psql"}');
