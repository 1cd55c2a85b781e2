// pg-boss. https://timgit.github.io/pg-boss/#/./api/workers: a large `batchSize`, which one call of the function gets and one statement
// completes; `burstWhenBatchFull` fetches on without a pause while batches are full; NOTIFY for the idle. Tried: batches of 200, 500
// and 1,000, and 1, 2 and 4 workers in the process (`localConcurrency`); 1,000 by 2 was the fastest. Finished jobs are kept, its default.

import { PgBoss } from "pg-boss";
import { options, ran, run } from "./contest.mjs";

const QUEUE = "bench";
let boss;

await run({
  async setup() { await this.open(); await boss.createQueue(QUEUE, { notify: true }); },
  async open() {
    if (boss) return;
    boss = new PgBoss({ connectionString: options.dsn, max: 20, useListenNotify: true });
    boss.on("error", (error) => console.error(error));
    await boss.start();
  },
  async enqueueMany(payloads) { await boss.insert(QUEUE, payloads.map((data) => ({ data }))); },
  async enqueueOne(payload) { await boss.send(QUEUE, payload); },
  async work() {
    const settings = {
      batchSize: options.batch ?? 1000, localConcurrency: options.concurrency ?? 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5,
    };
    await boss.work(QUEUE, settings, async (jobs) => { for (const _ of jobs) ran(); });
  },
  async left() {
    const answer = await boss.getDb().executeSql(
      "select exists (select from pgboss.job where name = $1 and state in ('created', 'retry', 'active')) as some", [QUEUE]);
    return answer.rows[0].some;
  },
});
