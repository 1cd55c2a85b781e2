-- Limits of queues and of their lanes. A queue without any of them is claimed as before: "limited" is all that its claim reads.

alter table octop_queues
  add column global_limit   integer          constraint octop_queues_global_limit_is_in_range check (global_limit between 0 and 1000000),
  add column lane_limit     integer          constraint octop_queues_lane_limit_is_in_range check (lane_limit between 1 and 1000000),
  add column rate           double precision constraint octop_queues_rate_is_in_range check (rate >= 0.0000003 and rate <= 10000),
  add column burst          integer          constraint octop_queues_burst_is_in_range check (burst between 1 and 1000000),
  add column lane_rate      double precision constraint octop_queues_lane_rate_is_in_range check (lane_rate >= 0.0000003 and lane_rate <= 10000),
  add column lane_burst     integer          constraint octop_queues_lane_burst_is_in_range check (lane_burst between 1 and 1000000),
  add column ordered        boolean,
  add column lane_weights   jsonb            constraint octop_queues_lane_weights_are_an_object check (jsonb_typeof(lane_weights) = 'object'),
  add column ageing_seconds double precision constraint octop_queues_ageing_is_in_range check (ageing_seconds >= 0.001 and ageing_seconds <= 31536000),
  add column windows        jsonb            constraint octop_queues_windows_are_a_list check (jsonb_typeof(windows) = 'array');
alter table octop_queues
  add column limited boolean not null generated always as (
    global_limit is not null or lane_limit is not null or rate is not null or lane_rate is not null or coalesce(ordered, false)
    or lane_weights is not null or ageing_seconds is not null or windows is not null) stored;
comment on column octop_queues.global_limit is 'Tasks of this queue that run at once on all workers together, 0 to 1,000,000. Null = no limit.';
comment on column octop_queues.lane_limit is 'Tasks of one lane (of one tenant) that run at once on all workers together, 1 to 1,000,000. Tasks without a lane are not limited by it. Null = no limit.';
comment on column octop_queues.rate is 'Starts per second of all workers together, 0.0000003 to 10,000; in any span of t seconds at most rate * t + burst tasks start. Null = no limit.';
comment on column octop_queues.burst is 'Starts that a queue which was idle may make at once, 1 to 1,000,000. Null = those of one second, at least 1.';
comment on column octop_queues.lane_rate is 'Starts per second of each lane (of one tenant), as rate. Tasks without a lane are not limited by it. Null = no limit.';
comment on column octop_queues.lane_burst is 'Starts that a lane which was idle may make at once, as burst.';
comment on column octop_queues.ordered is 'Tasks of one lane (of one tenant) run one at a time, in the order of seq: a head that is failed, blocked or frozen holds up its lane until it has ended or is cancelled. Tasks without a lane are not ordered. Null = no.';
comment on column octop_queues.lane_weights is 'By lane, how many tasks it gets each time its turn comes, 1 to 1,000: {"acme": 3}. Lanes that are not named have 1.';
comment on column octop_queues.ageing_seconds is 'Each such span of waiting is worth one step of priority, so that nothing waits for ever behind better priorities. Null = strict priorities.';
comment on column octop_queues.windows is
  'Limits that hold at times of the day: a list of {"days": [1..7, 1 = Monday], "from": "22:00", "until": "06:00", "timezone": "Europe/Berlin"} with any of global_limit, lane_limit, rate, burst, lane_rate, lane_burst (null = none). The first window that is open holds.';
comment on column octop_queues.limited is 'Has it any limit or rule of its own? Claims of other queues pay for none. Generated.';
comment on constraint octop_queues_global_limit_is_in_range on octop_queues is '0 to 1,000,000.';
comment on constraint octop_queues_lane_limit_is_in_range on octop_queues is '1 to 1,000,000.';
comment on constraint octop_queues_rate_is_in_range on octop_queues is '0.0000003 (one in 38 days) to 10,000 starts per second.';
comment on constraint octop_queues_burst_is_in_range on octop_queues is '1 to 1,000,000.';
comment on constraint octop_queues_lane_rate_is_in_range on octop_queues is '0.0000003 (one in 38 days) to 10,000 starts per second.';
comment on constraint octop_queues_lane_burst_is_in_range on octop_queues is '1 to 1,000,000.';
comment on constraint octop_queues_lane_weights_are_an_object on octop_queues is 'A JSON object, such as {"acme": 3}.';
comment on constraint octop_queues_ageing_is_in_range on octop_queues is '0.001 to 31,536,000 seconds (a year).';
comment on constraint octop_queues_windows_are_a_list on octop_queues is 'A JSON array of objects.';

-- What a completion asks: is any of these queues limited? Empty where none is.
create index octop_queues_limited on octop_queues (name) where limited;
comment on index octop_queues_limited is 'Queues with limits: a completion wakes others when it frees a place there.';

-- A lane's tasks in the order of enqueue, whatever they wait for: its tenants, and its head where the order is strict. Tasks without a
-- lane, and so most queues, have no entry. length(), because lane > '' would let the planner take it for the walks over what waits.
create index octop_tasks_live_lanes on octop_tasks_live (queue, lane, tenant, seq) where length(lane) > 0;
comment on index octop_tasks_live_lanes is 'Lanes by tenant, and the head of each where the order is strict.';
create index octop_tasks_frozen_lanes on octop_tasks_frozen (queue, lane, tenant, seq) where length(lane) > 0;
comment on index octop_tasks_frozen_lanes is 'Is a frozen task the head of its lane? Then nothing behind it starts, where the order is strict.';

-- What runs in a queue, from the newest start on: a count begins where few of those that have ended lie before it. (Dead entries stay until
-- vacuum may take them: by lane and worker each count passed all of them, 50 pages after 500 tasks and 5,000 after 50,000.)
drop index octop_tasks_live_running;
create index octop_tasks_live_running on octop_tasks_live (queue, started_at, worker_id) where status = 'running';
comment on index octop_tasks_live_running is 'Sweep, deadlines and limits: what runs now, by the moment of its start.';

-- What the gates of limited queues and of their lanes remember, written only under the queue's lock. A change raises "no", and the row is read
-- from the end of its index: whatever keeps vacuum away, no reader passes versions that are dead. Logged: after a crash a full bucket
-- would be a second burst, and a mark that was lost is only made anew.
create table _octop_gates (
  queue    text        collate "C" not null,
  tenant   text        collate "C" not null,
  lane     text        collate "C" not null,
  no       bigint      not null,
  empty_at timestamptz,
  rules    xid,
  sure     xid8,
  since    timestamptz,
  earlier  uuid[]      not null default '{}',
  starts   integer     not null default 0,
  primary key (queue, lane, tenant, no)
) with (fillfactor = 50, toast_tuple_target = 128, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
alter table _octop_gates alter column earlier set storage external;
comment on table _octop_gates is
  'What gates remember: the token buckets of queues (lane and tenant empty) and of lanes, and from where on the running tasks of a queue are counted. No row = a full bucket, and all are counted. Buckets of lanes that are full again are removed by the sweep.';
comment on column _octop_gates.queue is 'The queue.';
comment on column _octop_gates.tenant is 'Tenant of the lane; empty for the queue''s own row.';
comment on column _octop_gates.lane is 'The lane; empty for the queue''s own row.';
comment on column _octop_gates.no is 'Rises with each change.';
comment on column _octop_gates.empty_at is 'When the bucket was empty: since then it has won rate tokens a second, up to the burst. In the future, it lacks some. Null = full.';
comment on column _octop_gates.rules is 'xmin of the queue''s row in octop_queues for which the mark holds: once the queue has been changed, it is made anew.';
comment on column _octop_gates.sure is 'No mark before all transactions with a smaller id have ended: they may start tasks by older rules, and without the lock.';
comment on column _octop_gates.since is 'The mark: tasks that were started earlier are counted only if they are in "earlier". Null = none yet, all that run are counted.';
comment on column _octop_gates.earlier is 'Ids of the tasks that were started before the mark and may run still.';
comment on column _octop_gates.starts is 'About how many were started since the mark. Many more than run mean a new mark.';
