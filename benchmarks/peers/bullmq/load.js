// Load for BullMQ: jobs added in bulk. Ends are noticed by the number of completed jobs, and where one flow runs at a
// time by its QueueEvents. Answers the runner as kit/peerkit.py says.
const { Queue, QueueEvents } = require('bullmq');
const readline = require('readline');

const connection = { host: '127.0.0.1', port: +process.env.PEER_PORT };
const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const BULK = 200;
const STEPS = 5;

(async () => {
  const queue = new Queue('bench', { connection });
  let events = null, heard = null;
  const listen = async () => {
    events = new QueueEvents('bench', { connection });
    // A chain's last job returns 5.
    events.on('completed', ({ returnvalue }) => { if (returnvalue.i === STEPS) heard(); });
    await events.waitUntilReady();
  };
  const add = (name, from, count) => queue.addBulk(
    Array.from({ length: count }, (_, place) => ({ name, data: { n: from + place, k: 1 } })));
  const submit = async (name, first, flows) => {
    for (let at = 0; at < flows; at += BULK) await add(name, first + at, Math.min(BULK, flows - at));
  };
  say('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: what, first, flows, seconds: patience } = JSON.parse(line);
    if (what === 'throughput') {
      const began = seconds();
      const wanted = await queue.getCompletedCount() + flows * STEPS;
      await submit('noop', first, flows);
      while (await queue.getCompletedCount() < wanted) await sleep(10);
      say({ seconds: seconds() - began });
    } else if (what === 'latency') {
      if (!events) await listen();
      const ms = [], until = seconds() + patience;
      for (let n = first; n < first + flows && seconds() < until; n++) {
        const began = seconds();
        const done = new Promise((resolve) => { heard = resolve; });
        await queue.add('noop', { n, k: 1 });
        await done;
        ms.push((seconds() - began) * 1000);
      }
      say({ ms });
    } else {
      await submit('slow', first, flows);
      say({ started: flows });
    }
  }
  process.exit(0);
})();
