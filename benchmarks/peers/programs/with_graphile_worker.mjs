// graphile-worker with the very settings of https://worker.graphile.org/docs/performance: 24 jobs at once, 25 connections, a local queue
// of 500, completions batched. Its log of each job is off. It deletes finished jobs.

import { Logger, makeWorkerUtils, run as startRunner } from "graphile-worker";
import { options, ran, run } from "./contest.mjs";

const preset = {
  worker: {
    connectionString: options.dsn,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: new Logger(() => () => {}),
  },
};
let utils;

await run({
  async setup() { await this.open(); await utils.migrate(); },
  async open() { utils ??= await makeWorkerUtils({ preset }); },
  async enqueueMany(payloads) { await utils.addJobs(payloads.map((payload) => ({ identifier: "no_op", payload }))); },
  async enqueueOne(payload) { await utils.addJob("no_op", payload); },
  async work() { await startRunner({ preset, noHandleSignals: true, taskList: { no_op: async () => { ran(); } } }); },
  async left() {
    const answer = await utils.withPgClient((client) =>
      client.query("select exists (select from graphile_worker._private_jobs) as some"));
    return answer.rows[0].some;
  },
});
