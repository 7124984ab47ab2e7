// BullMQ's worker: each job adds the next one of its chain; the last one tells the load on a channel.
const { Queue, Worker } = require('bullmq');
const fs = require('fs');

const connection = { host: '127.0.0.1', port: +process.env.PEER_PORT };
const journal = fs.openSync(process.env.PEER_JOURNAL, 'a');
const tell = (words) => fs.writeSync(journal, words + '\n');
const now = () => (Number(process.hrtime.bigint()) / 1e9).toFixed(6);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

(async () => {
  const queue = new Queue('bench', { connection });
  const worker = new Worker('bench', async (job) => {
    const { n, k } = job.data;
    if (job.name === 'slow') {
      tell(`S ${n} ${k} ${now()}`);
      await sleep(50);
      tell(`E ${n} ${k} ${now()}`);
    }
    if (k < 5) await queue.add(job.name, { n, k: k + 1 });
    return { i: k };
  }, { connection, concurrency: +process.env.PEER_CONCURRENCY });
  await worker.waitUntilReady();
  tell(`R ${process.pid}`);
})();
