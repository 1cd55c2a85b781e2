// What the contenders in Node have in common, as contest.py for those in Python: options, phases, clock, one line of JSON.
// The clock is CLOCK_MONOTONIC, which all processes of a machine share.

import { readFileSync } from "node:fs";

const CHUNK = 1000;
const TOGETHER = 200;
export const options = JSON.parse(process.argv[2]);
const now = () => Number(process.hrtime.bigint()) / 1e9;
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

let first = 0, count = 0, last = 0, expected = options.tasks, resolve = () => {};
const allRan = () => new Promise((done) => { resolve = done; if (count >= expected) done(); });

/** Note that the task function was called; it does nothing else. */
export function ran() {
  if (!first) first = now();
  if (++count >= expected) { last = now(); resolve(); }
}

function payloads(number) {
  const text = options.payload_bytes ? { text: "x".repeat(options.payload_bytes) } : {};
  return Array.from({ length: number }, (_, n) => ({ n, ...text }));
}

function residentMegabytes() {
  const line = readFileSync("/proc/self/status", "utf8").split("\n").find((each) => each.startsWith("VmRSS:"));
  return Number(line.split(/\s+/)[1]) / 1024;
}

/** `peer` has setup, open, enqueueMany, enqueueOne, work, left; enqueueInTransaction if it can. */
export async function run(peer) {
  const singles = async (call) => {
    await peer.open();
    await call({ n: 0 });
    const began = now();
    for (const each of payloads(options.tasks)) await call(each);
    return now() - began;
  };
  const phases = {
    async setup() { await peer.setup(); return {}; },
    async enqueue() {
      const all = payloads(options.tasks);
      const chunk = Math.max(1, Math.min(CHUNK, Math.floor(8e6 / Math.max(1, options.payload_bytes ?? 0))));
      await peer.open();
      const began = now();
      for (let start = 0; start < all.length; start += chunk) await peer.enqueueMany(all.slice(start, start + chunk));
      return { enqueue_seconds: now() - began };
    },
    async one_by_one() { return { one_by_one_seconds: await singles((each) => peer.enqueueOne(each)) }; },
    async together() {
      await peer.open();
      await peer.enqueueOne({ n: 0 });
      const all = payloads(options.tasks);
      const began = now();
      for (let start = 0; start < all.length; start += TOGETHER)
        await Promise.all(all.slice(start, start + TOGETHER).map((each) => peer.enqueueOne(each)));
      return { together_seconds: now() - began };
    },
    async transaction() { return { transaction_seconds: null }; },
    async drain() {
      await peer.open();
      await peer.work();
      await allRan();
      while (await peer.left()) await pause(0.002);
      const ended = now();
      return { drain_seconds: ended - first, first_at: first, done_at: ended, worker_megabytes: residentMegabytes() };
    },
    // beside other processes until nothing is left; all begin at one moment, begin_at
    async share() {
      await peer.open();
      expected = Infinity;
      await pause(Math.max(0, options.begin_at - now()));
      await peer.work();
      for (let seen = -1; seen !== count || (await peer.left()); ) { seen = count; await pause(0.005); }
      return { first_at: first || null, done_at: now(), count };
    },
    async latency() {
      await peer.open();
      await peer.work();
      await pause(options.idle_seconds ?? 1.5);
      const samples = [], gap = options.gap_seconds ?? 0.06;
      for (let n = 0; n < (options.samples ?? 100) + 3; n++) {
        expected = count + 1;
        await pause(gap + ((n * 7) % 13) * gap / 10);
        const began = now();
        await peer.enqueueOne({ n });
        await allRan();
        samples.push(1000 * (last - began));
      }
      return { latency_ms: samples.slice(3) };
    },
    async idle() {
      await peer.open();
      await peer.work();
      await pause(options.idle_seconds ?? 3);
      return { worker_megabytes: residentMegabytes() };
    },
  };
  try {
    const answer = { tasks: options.tasks };
    for (const name of options.phases) {
      options.tasks = expected = options.counts?.[name] ?? answer.tasks;
      Object.assign(answer, await phases[name]());
    }
    answer.megabytes_max = process.resourceUsage().maxRSS / 1024;
    process.stdout.write(JSON.stringify(answer) + "\n", () => process.exit(0));
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}
