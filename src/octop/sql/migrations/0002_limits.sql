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

-- Token buckets. One moment says all: when the bucket was, or will be, empty. Logged: after a crash a full bucket would be a second burst.
create table _octop_buckets (
  queue    text        collate "C" not null,
  tenant   text        collate "C" not null,
  lane     text        collate "C" not null,
  empty_at timestamptz not null,
  primary key (queue, lane, tenant)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table _octop_buckets is 'Token buckets of queues (lane and tenant empty) and of lanes. Those of lanes that are full again are removed by the sweep; no row = full.';
comment on column _octop_buckets.queue is 'The queue.';
comment on column _octop_buckets.tenant is 'Tenant of the lane; empty for the queue''s own bucket.';
comment on column _octop_buckets.lane is 'The lane; empty for the queue''s own bucket.';
comment on column _octop_buckets.empty_at is 'When it was empty: since then it has won rate tokens a second, up to the burst. In the future, it lacks some.';
