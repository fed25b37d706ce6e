// Where a request's time goes between the router, prefill, the handoff of its KV, and decode.
import {
  board, curves, mean, query, ratio, row, percentile, rate, withService, DEPLOYMENT, MODEL, NAME, OF_WORKER, PROCESS,
} from './board.mjs';

const QUEUE = 'vllm:request_queue_time_seconds';
const PREFILL = 'vllm:request_prefill_time_seconds';
const HANDOFF = 'skein_request_handoff_time_seconds';
const DECODE = 'vllm:request_decode_time_seconds';
const times = (histogram) => [query(mean(histogram, MODEL), 'mean'), query(percentile(0.95, histogram, MODEL), 'p95')];
const waiting = (service) => `sum (${withService(`vllm:num_requests_waiting{${OF_WORKER}}`, service)})`;
const blocks = (service) => ['held', 'cached', 'free'].map((state) =>
  query(`sum (${withService(`skein_kv_blocks{state="${state}", ${OF_WORKER}}`, service)})`, state));
const BYTES = 'skein_handoff_bytes_total';
const BUSY = 'skein_handoff_busy_seconds_total';

export default board({
  uid: 'skein-disaggregation',
  title: 'Skein / Disaggregation',
  about: 'Where a request’s time goes: queues, prefill, the handoff of its KV, decode. Times are those of all routers.',
  instances: 'skein_kv_blocks',
  instanceLabel: 'Worker',
  rows: [
    row('Where the time goes',
      curves({ title: 'Mean time of a choice by part', about: 'Of choices that finished. Queue: from admission to the first step, ' +
        'planning included.', unit: 's', stack: true, width: 12, height: 8,
        queries: [query(mean(QUEUE, MODEL), 'queue'), query(mean(PREFILL, MODEL), 'prefill'),
          query(mean(HANDOFF, MODEL), 'handoff'), query(mean(DECODE, MODEL), 'decode')] }),
      curves({ title: 'Requests that wait, by where', about: 'In the router for one of --max-streams; at prefill instances; at decode ' +
        'instances for their KV; at the orchestrator for room at a decode instance.', unit: 'none', width: 12, height: 8,
        queries: [query(`sum (skein_router_queued{${MODEL}})`, 'router'),
          query(waiting('prefill-worker'), 'prefill'),
          query(waiting('decode-worker'), 'decode, for KV'),
          query(`sum (skein_orchestrator_requests{state="waiting", ${DEPLOYMENT}})`, 'orchestrator, for decode room')] })),
    row('Times',
      curves({ title: 'Queue', about: 'From admission to the first step with the prompt.', unit: 's', width: 6, queries: times(QUEUE) }),
      curves({ title: 'Prefill', about: 'From the first step with the prompt to the end of the last.', unit: 's', width: 6,
        queries: times(PREFILL) }),
      curves({ title: 'Handoff after prefill', about: 'From the end of prefill until all KV is at the decode instance, a wait for room ' +
        'there included. What moved during prefill is not in it.', unit: 's', width: 6, steps: [[1, 'red']], queries: times(HANDOFF) }),
      curves({ title: 'Decode', about: 'From the first token to the last.', unit: 's', width: 6, queries: times(DECODE) })),
    row('Handoff',
      curves({ title: 'KV handed over', about: 'Bytes a second by path and transport, idle time included.', unit: 'Bps',
        stack: true, queries: [query(rate(BYTES, OF_WORKER, 'path, transport'), '{{path}} {{transport}}')] }),
      curves({ title: 'Speed while moving', about: 'Bytes by the seconds in which a handoff moved bytes: what a path can do.',
        unit: 'Bps', queries: [query(ratio(rate(BYTES, OF_WORKER, 'path, transport'), rate(BUSY, OF_WORKER, 'path, transport')),
          '{{path}} {{transport}}')] }),
      curves({ title: 'Prompts handed over', about: 'Prompts whose KV a decode instance has taken, per second.', unit: 'ops',
        queries: [query(rate('skein_handoffs_committed_total', OF_WORKER, PROCESS), NAME)] })),
    row('KV cache',
      curves({ title: 'KV blocks of prefill', about: 'Blocks of all chosen prefill instances, by state.', unit: 'none', stack: true,
        queries: blocks('prefill-worker') }),
      curves({ title: 'KV blocks of decode', about: 'Blocks of all chosen decode instances, by state.', unit: 'none', stack: true,
        queries: blocks('decode-worker') }),
      curves({ title: 'KV in use by instance', about: 'Share of KV blocks that requests hold.', unit: 'percentunit', max: 1,
        steps: [[0.9, 'red']], queries: [query(withService(`vllm:kv_cache_usage_perc{${OF_WORKER}}`), `{{service}} ${NAME}`)] })),
    row('Staging buffers (--handoff=staging)',
      curves({ title: 'Buffers by state', about: 'Staging buffers of decode instances; none without --handoff=staging.', unit: 'none',
        stack: true, width: 12, queries: [query(`sum by (state) (skein_handoff_backends{${OF_WORKER}})`, '{{state}}')] }),
      curves({ title: 'Writers that wait for one', about: 'Prefill instances with KV to hand over and no buffer to write to.',
        unit: 'none', width: 12, queries: [query(`sum by (${PROCESS}) (skein_handoff_backend_waiting{${OF_WORKER}})`, NAME)] })),
  ],
});
