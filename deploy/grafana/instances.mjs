// Each process: what it runs, how large its batches are, what memory it takes.
import { board, curves, mean, query, row, percentile, rate, table, withService, NAME, OF_WORKER, PROCESS, RATE, WHERE } from './board.mjs';

const each = (expr) => query(withService(expr), `{{service}} ${NAME}`);
const STEP = 'vllm:iteration_tokens_total';
const column = (expr, legend, unit) => ({ expr, legend, unit });
const INSTANCE = `${NAME}: {{instance_index}}`;  // of skein-node
const labels = (expr) => ({ expr, legend: 'labels', hidden: true });  // for its labels, not for its value

export default board({
  uid: 'skein-instances',
  title: 'Skein / Instances',
  about: 'Each process: steps, batch sizes, KV, memory, and whether it is there.',
  instances: 'up',
  instanceLabel: 'Process',
  rows: [
    row('Processes',
      table({ height: 7, title: 'Processes', about: 'One row for each process that Prometheus scrapes or should: without a service it was ' +
        'never there, or is gone.', unit: 'none', queries: [
        column(`max by (namespace, pod, node, job, instance) (up{${WHERE}})`, 'Up'),
        labels(`max by (instance, service, version) (skein_build_info{${WHERE}})`),
        column(`max by (instance) (time() - process_start_time_seconds{${WHERE}})`, 'Runs for', 's'),
        column(`max by (instance) (process_resident_memory_bytes{${WHERE}})`, 'Memory', 'bytes'),
        column(`max by (instance) (rate(process_cpu_seconds_total{${WHERE}}[${RATE}]))`, 'CPUs'),
        column(`min by (instance) (skein_invariants_ok{${WHERE}})`, 'Invariants hold'),
      ] })),
    row('Steps',
      curves({ title: 'Steps / s', about: 'Forward passes a second.', unit: 'ops',
        queries: [each(`rate(skein_engine_steps_total{${OF_WORKER}}[${RATE}])`)] }),
      curves({ title: 'Tokens a step', about: 'Mean size of the batch, in tokens: prompt slices at prefill, one a sequence at decode.',
        unit: 'none', queries: [query(mean(STEP, OF_WORKER, PROCESS), NAME)] }),
      curves({ title: 'Tokens a step, p95', about: 'Large batches.', unit: 'none',
        queries: [query(percentile(0.95, STEP, OF_WORKER, PROCESS), NAME)] })),
    row('Work',
      curves({ title: 'Running', about: 'Prefill: placed, KV not yet handed over. Decode: sequences in the batch.', unit: 'none',
        queries: [each(`vllm:num_requests_running{${OF_WORKER}}`)] }),
      curves({ title: 'Waiting, by reason', about: 'capacity: queued at prefill or in a router; deferred: for room at a decode instance, or there for its KV.',
        unit: 'none', queries: [query(`sum by (${PROCESS}, reason) (vllm:num_requests_waiting_by_reason{${OF_WORKER}})`,
          `{{reason}} ${NAME}`)] }),
      curves({ title: 'Tokens computed / s', about: 'Prompt tokens at prefill, output tokens at decode.', unit: 'none',
        queries: [query(rate('skein_prompt_tokens_computed_total', OF_WORKER, PROCESS), `prompt ${NAME}`),
          query(rate('skein_output_tokens_computed_total', OF_WORKER, PROCESS), `output ${NAME}`)] })),
    row('KV and speed',
      curves({ title: 'KV in use', about: 'Share of KV blocks that requests hold.', unit: 'percentunit', max: 1, steps: [[0.9, 'red']],
        queries: [each(`vllm:kv_cache_usage_perc{${OF_WORKER}}`)] }),
      curves({ title: 'KV blocks', about: 'All blocks of an instance.', unit: 'none',
        queries: [each(`skein_kv_blocks{state="total", ${OF_WORKER}}`)] }),
      curves({ title: 'Speed of recent steps', about: 'Tokens that recent steps computed a second; plans without a profile use it.',
        unit: 'none', queries: [each(`skein_engine_tokens_per_second{${OF_WORKER}}`)] })),
    row('Machine',
      curves({ title: 'Memory', about: 'Resident memory. Weights are mapped from their file and shared by the processes of a host.',
        unit: 'bytes', width: 6, queries: [each(`process_resident_memory_bytes{${WHERE}}`)] }),
      curves({ title: 'CPU', about: 'Cores in use.', unit: 'none', width: 6,
        queries: [each(`rate(process_cpu_seconds_total{${WHERE}}[${RATE}])`)] }),
      curves({ title: 'Open files', about: 'File descriptors, by their limit.', unit: 'percentunit', width: 6,
        queries: [each(`process_open_fds{${WHERE}} / process_max_fds{${WHERE}}`)] }),
      curves({ title: 'Client connections', about: 'Open connections of clients at each router.', unit: 'none', width: 6,
        queries: [query(`skein_router_connections{${WHERE}}`, NAME)] })),
    row('Health',
      curves({ title: 'Invariants', about: '1 while every invariant of the core holds; /debug/invariants names the violated one.',
        unit: 'none', max: 1, queries: [each(`skein_invariants_ok{${WHERE}}`)] }),
      curves({ title: 'Scraped', about: '1 while Prometheus can scrape the process.', unit: 'none', max: 1,
        queries: [query(`up{${WHERE}}`, `{{job}} ${NAME}`)] }),
      curves({ title: 'Starts within an hour', about: 'How often each process was started again within an hour.', unit: 'none',
        steps: [[3, 'red']], queries: [query(`changes(process_start_time_seconds{${WHERE}}[1h])`, NAME)] })),
    row('Instances under skein-node (docs/node.md)',
      curves({ title: 'Instances that run', about: '1 while the process of the instance runs.', unit: 'none', max: 1,
        queries: [query(`skein_node_instance_up{${WHERE}}`, INSTANCE)] }),
      curves({ title: 'Instances that take work', about: '1 while the instance takes work.', unit: 'none', max: 1,
        queries: [query(`skein_node_instance_ready{${WHERE}}`, INSTANCE)] }),
      curves({ title: 'Restarts of instances', about: 'Times that skein-node started the instance again within an hour.', unit: 'none',
        steps: [[3, 'red']], queries: [query(`increase(skein_node_instance_restarts_total{${WHERE}}[1h])`, INSTANCE)] })),
  ],
});
