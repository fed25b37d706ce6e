// Offline jobs: how far they are, what they may take beside online requests and take, and what stands in their way.
import { board, curves, number, query, row, rate, DEPLOYMENT, MODEL, NAME, PROCESS, WHERE } from './board.mjs';

const LINES = 'skein_job_lines_total';
const OF_ROUTER = 'skein_router_job_lines_total';
const ENDED = 'skein_jobs_ended_total';
const sum = (gauge) => `sum (${gauge}{${WHERE}})`;
const hour = (counter, filter) => `sum (increase(${counter}{${filter}, ${WHERE}}[1h]))`;
const ANSWERED = 'outcome=~"completed|failed"';

export default board({
  uid: 'skein-offline',
  title: 'Skein / Offline',
  about: 'Offline jobs (/v1/batches): how far they are, the lines that are computed beside online requests, and what stands in their way. ' +
    'docs/offline_operations.md explains it; skeinctl jobs lists the jobs.',
  instances: 'skein_epoch',
  instanceLabel: 'Orchestrator',
  rows: [
    row('Now',
      number({ title: 'Jobs', about: 'Jobs that have not ended.', unit: 'none', decimals: 0, queries: [query(sum('skein_jobs'), 'not ended')] }),
      number({ title: 'Lines left', about: 'Lines without a result, those that are computed included.', unit: 'none', decimals: 0,
        queries: [query(sum('skein_job_lines_left'), 'lines')] }),
      number({ title: 'Tokens / s', about: 'Tokens of prompts and answers of all jobs, in the last minute.', unit: 'none', decimals: 0,
        queries: [query(sum('skein_job_tokens_per_second'), 'tokens a second')] }),
      number({ title: 'Time left', about: 'Estimated, until the last of the jobs that run has ended. 0: there is none, or its pace is not known.', unit: 's', decimals: 0,
        queries: [query(`max (skein_job_left_seconds{${WHERE}})`, 'at this pace')] }),
      number({ title: 'Late', about: 'Jobs that will not end within their windows at their pace.', unit: 'none', decimals: 0, steps: [[1, 'red']],
        queries: [query(sum('skein_jobs_late'), 'jobs')] }),
      number({ title: 'Served', about: 'Cells whose orchestrator serves jobs. 0: none was given a folder (--jobs-dir), none leads, or the folder is refused.', unit: 'none', decimals: 0,
        queries: [query(sum('skein_jobs_served'), 'cells')] })),
    row('Jobs',
      curves({ title: 'Jobs by state', about: 'validating: the input is checked; in_progress: lines are computed, or wait; finalizing: the output is written; cancelling: what runs is taken back.',
        unit: 'none', stack: true, queries: [query(`sum by (state) (skein_jobs{${WHERE}})`, '{{state}}')] }),
      curves({ title: 'Jobs that ended', about: 'In five minutes, by outcome. expired: the window was over; failed: the input was wrong.', unit: 'none', stack: true,
        queries: [query(`sum by (outcome) (increase(${ENDED}{${WHERE}}[5m]))`, '{{outcome}}')] }),
      curves({ title: 'Age of the oldest job, and time left', about: 'How long ago the oldest job that has not ended was created; and the estimated time until the last one that runs has ended.',
        unit: 's', queries: [query(`max (skein_job_oldest_seconds{${WHERE}})`, 'oldest'), query(`max (skein_job_left_seconds{${WHERE}})`, 'left')] })),
    row('Lines',
      curves({ title: 'Lines at a time', about: 'Computed: by routers, for the orchestrator. Limit: how many may be, beside online requests: it falls at once when requests wait, and grows ' +
        'while none does and KV blocks are free. A limit that swings without online traffic is a cluster that is fully used.', unit: 'none',
        queries: [query(sum('skein_job_lines_running'), 'computed'), query(sum('skein_job_lines_limit'), 'limit')] }),
      curves({ title: 'Lines without a result', about: 'Of the jobs that are not about to end, those that are computed included.', unit: 'none', queries: [query(sum('skein_job_lines_left'), 'left')] }),
      curves({ title: 'Lines / s', about: 'What became of lines, a second. completed, failed: answered, once each. returned: given back, and given again. duplicate: answered again, and dropped.',
        unit: 'ops', stack: true, queries: [query(rate(LINES, WHERE, 'outcome'), '{{outcome}}')] }),
      curves({ title: 'Lines / s, by router outcome', about: 'As routers see them. returned: the cluster had no room or no instance, or the router left; cancelled: the orchestrator took them back.',
        unit: 'ops', stack: true, queries: [query(rate(OF_ROUTER, DEPLOYMENT, 'outcome'), '{{outcome}}')] }),
      curves({ title: 'Lines computed, by router', about: 'How many lines each router computes now; at most its --job-lines-max.', unit: 'none',
        queries: [query(`sum by (${PROCESS}) (skein_router_job_lines_running{${DEPLOYMENT}})`, NAME)] }),
      curves({ title: 'Tokens / s of jobs', about: 'Tokens of prompts and answers of offline jobs, in the last minute; and of all requests.', unit: 'none',
        queries: [query(sum('skein_job_tokens_per_second'), 'jobs'),
          query(`${rate('vllm:prompt_tokens_total', MODEL)} + ${rate('vllm:generation_tokens_total', MODEL)}`, 'all')] })),
    row('Beside online requests',
      curves({ title: 'Requests that wait', about: 'In routers and at prefill instances, lines of jobs included. While any wait, the limit of lines falls.', unit: 'none',
        queries: [query(`sum (vllm:num_requests_waiting{${MODEL}})`, 'wait')] }),
      curves({ title: 'KV in use', about: 'Share of the KV blocks of each instance that requests hold. Above 0.8 at decode instances together, the limit of lines does not grow.', unit: 'percentunit', max: 1,
        steps: [[0.8, 'yellow']], queries: [query(`max by (${PROCESS}) (vllm:kv_cache_usage_perc{${MODEL}})`, NAME)] }),
      curves({ title: 'Preemptions / s', about: 'Times that a sequence gave its KV blocks up for another one. Lines come first: their priority is lower.', unit: 'ops',
        queries: [query(rate('vllm:num_preemptions_total', MODEL), 'preemptions')] })),
    row('What stands in their way',
      number({ title: 'Folder refused', about: 'Orchestrators that lead and cannot use the folder of jobs; their clients get an error.', unit: 'none', decimals: 0, steps: [[1, 'red']],
        width: 6, queries: [query(sum('skein_jobs_refused'), 'cells')] }),
      number({ title: 'Expired', about: 'Jobs whose window was over, in the last hour.', unit: 'none', decimals: 0, steps: [[1, 'red']], width: 6,
        queries: [query(hour(ENDED, 'outcome="expired"'), 'last hour')] }),
      number({ title: 'Lines that failed', about: 'In the last hour, answered with an error, or without a response: most of them are wrong requests.', unit: 'none', decimals: 0, width: 6,
        queries: [query(hour(LINES, 'outcome="failed"'), 'last hour')] }),
      number({ title: 'Lines answered', about: 'In the last hour, with a result or an error.', unit: 'none', decimals: 0, width: 6,
        queries: [query(hour(LINES, ANSWERED), 'last hour')] }),
      curves({ title: 'Failures of the folder', about: 'Times a second that the folder could not be read or written. Each is tried again; while results fail, no line is given. The log says why.',
        unit: 'ops', width: 24, queries: [query(rate('skein_job_store_failures_total', WHERE), 'failures')] })),
  ],
});
