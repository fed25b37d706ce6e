// What users get: latency, errors, goodput, throughput.
import {
  board, bound, curves, number, query, ratio, row, percentile, rate, DEPLOYMENT, MODEL, NAME, OF_WORKER, RATE, RECORDED, WHERE,
} from './board.mjs';

const OF_ROUTER = OF_WORKER;  // routers have the same labels
const TTFT = 'vllm:time_to_first_token_seconds';
const TPOT = 'vllm:request_time_per_output_token_seconds';
const GAP = 'vllm:inter_token_latency_seconds';
const ENDED = 'vllm:request_success_total';

// The share of a histogram's values that are within a bound of the reader's. Prometheus 3 writes 1 as 1.0.
const within = (histogram, variable) =>
  ratio(rate(histogram + '_bucket', `le=~"$${variable}(\\\\.0)?", ${OF_ROUTER}`), rate(histogram + '_count', OF_ROUTER));
const errors = ratio(rate(ENDED, `finished_reason="error", ${OF_ROUTER}`), rate(ENDED, `finished_reason!="abort", ${OF_ROUTER}`));
const ANSWERS = 'skein_router_answers_total';
// Those over a tenant's own limit are not refused because of load.
const refused = ratio(`(${rate(ANSWERS, `status="429", ${WHERE}`)} - (${rate('skein_tenant_over_limit_total', WHERE)} or vector(0)))`,
  rate(ANSWERS, `path=~"/v1/(chat/completions|completions|responses)|other", ${WHERE}`));
const completed = rate(ENDED, `finished_reason=~"stop|length", ${OF_ROUTER}`);
const named = (share, slo) => `label_replace(${share}, "slo", "${slo}", "", "")`;
const goodput = `${completed} * min (${named(within(TTFT, 'slo_ttft'), 'ttft')} or ${named(within(TPOT, 'slo_tpot'), 'tpot')})`;
const good = (histogram, variable, name) => query(within(histogram, variable), `${name} ≤ $${variable} s`);
// A percentile beside its share of the bound that the reader chose, which gives the colour.
const P95 = { legend: 'p95', unit: 's' };
const againstSlo = (histogram, variable) => ({
  unit: 'percentunit', beside: P95, steps: [[0.5, 'yellow'], [1, 'red']], width: 5,
  queries: [query(percentile(0.95, histogram, OF_ROUTER), P95.legend),
    query(`(${percentile(0.95, histogram, OF_ROUTER)}) / $${variable}`, 'of the SLO')],
});
const three = (histogram) => [0.5, 0.95, 0.99].map((p) => query(percentile(p, histogram, OF_ROUTER), `p${p * 100}`));

export default board({
  uid: 'skein-overview',
  title: 'Skein / Overview',
  about: 'What users get: time to first token, time per output token, errors, and goodput against the SLOs chosen above.',
  instances: 'skein_router_connections',
  instanceLabel: 'Router',
  bounds: [
    bound('slo_ttft', 'SLO: TTFT, s', ['0.1', '0.25', '0.5', '0.75', '1', '2.5', '5', '7.5', '10', '20'], '2.5'),
    bound('slo_tpot', 'SLO: time per token, s', ['0.01', '0.025', '0.05', '0.075', '0.1', '0.15', '0.2', '0.3', '0.5', '1'], '0.1'),
  ],
  rows: [
    row('Now',
      number({ title: 'Requests / s', about: 'Choices that ended with an answer, per second.', unit: 'reqps', width: 3,
        queries: [query(completed, 'completed')] }),
      number({ title: 'TTFT p95', about: '95 of 100 first tokens came within this time of the request; and how much of the SLO ' +
        'chosen above that is.', ...againstSlo(TTFT, 'slo_ttft') }),
      number({ title: 'Time per output token p95', about: 'Mean time between the tokens of a choice; 95 of 100 choices are within; ' +
        'and how much of the SLO chosen above that is.', ...againstSlo(TPOT, 'slo_tpot') }),
      number({ title: 'Errors and refusals', about: 'Share of choices that ended with an error of ours, and of requests that were ' +
        'refused because of load (429). Clients’ mistakes and clients that left are neither.', unit: 'percentunit', width: 5,
        queries: [query(errors, 'failed'), query(refused, 'refused')], steps: [[0.001, 'yellow'], [0.01, 'red']] }),
      number({ title: 'Output tokens / s', about: 'Tokens that clients were sent.', unit: 'none', decimals: 0, width: 3,
        queries: [query(rate('vllm:generation_tokens_total', OF_ROUTER), 'tokens/s')] }),
      number({ title: 'Instances', about: 'Live instances, as the orchestrator knows them.', unit: 'none', width: 3,
        queries: [query(`sum by (role) (skein_instances{${DEPLOYMENT}})`, '{{role}}')] })),
    row('Latency',
      curves({ title: 'Time to first token', about: 'From a request’s arrival at the router to the first token of each choice.',
        unit: 's', queries: three(TTFT) }),
      curves({ title: 'Time between tokens', about: 'Between two tokens of one choice, as the router sends them.', unit: 's',
        queries: three(GAP) }),
      curves({ title: 'Whole request', about: 'From a request’s arrival to its end.', unit: 's',
        queries: three('vllm:e2e_request_latency_seconds') })),
    row('Against the SLOs',
      curves({ title: 'Share within the SLOs', about: 'Share of first tokens, and of choices’ mean time per token, within the ' +
        'bounds chosen above.', unit: 'percentunit', max: 1,
        queries: [good(TTFT, 'slo_ttft', 'TTFT'), good(TPOT, 'slo_tpot', 'time per token')] }),
      curves({ title: 'Goodput', about: 'Completed choices per second, and those of them within both SLOs. Metrics tell each ' +
        'SLO’s share alone, so this is the smaller of the two: the true number may be lower.', unit: 'reqps',
        queries: [query(completed, 'completed'), query(goodput, 'within both SLOs, at most')] }),
      curves({ title: 'Burn of the error budgets', about: 'How many times faster than the SLOs of the alerts allow (docs/alerts.md) ' +
        'the budget is used up, over one hour; at 1 it lasts just as long as it should.', unit: 'none', steps: [[14.4, 'red']],
        queries: [query(`skein:slo_burn:rate1h{${RECORDED}}`, '{{slo}} {{model_name}} {{namespace}}')] })),
    row('Traffic',
      curves({ title: 'Choices by how they ended', about: 'stop and length: completed; abort: the client left; error: failed, by ' +
        'our doing; clients’ mistakes are not counted.',
        unit: 'reqps', stack: true, queries: [query(rate(ENDED, OF_ROUTER, 'finished_reason'), '{{finished_reason}}')] }),
      curves({ title: 'Answers by status', about: 'HTTP answers of the API. 429: refused before work was done; 499: the client left.',
        unit: 'reqps', stack: true, queries: [query(rate(ANSWERS, WHERE, 'status'), '{{status}}')] }),
      curves({ title: 'Tokens / s', about: 'Prompt tokens that were admitted, and output tokens that were sent.', unit: 'none',
        queries: [query(rate('vllm:prompt_tokens_total', OF_ROUTER), 'prompt'),
          query(rate('vllm:generation_tokens_total', OF_ROUTER), 'output')] })),
    row('Tried again',
      curves({ title: 'Choices tried again', about: 'Choices that went on at other instances, as a share of those that were accepted. moved: by choice, because ' +
        'their decode-worker drains; not reached: because the router does not reach it; waited: for the budget of retries, so the cluster goes on ' +
        'losing attempts.', unit: 'percentunit',
        queries: [['skein_router_resumes_total', 'all'], ['skein_router_drain_moves_total', 'moved'],
          ['skein_router_unreached_total', 'not reached'], ['skein_router_retries_delayed_total', 'waited']]
          .map(([name, legend]) => query(ratio(rate(name, WHERE), rate('skein_router_requests_total', `result="accepted", ${WHERE}`)), legend)) }),
      curves({ title: 'Goals reached', about: 'Choices that reached the goal that their request or tenant has, as a share of those that ended and had one. ' +
        'TTFT: from arrival to the first token; TPOT: mean time between tokens.', unit: 'percentunit', width: 16,
        queries: ['ttft', 'tpot'].map((goal) => query(ratio(rate('skein_router_goals_total', `goal="${goal}", result="met", ${WHERE}`),
          rate('skein_router_goals_total', `goal="${goal}", ${WHERE}`)), goal)) })),
    row('Tenants',
      curves({ title: 'Tokens / s by tenant', about: 'Prompt and output tokens that each tenant has used, once a request has ended (docs/tenants.md).',
        unit: 'none', stack: true, queries: [query(rate('skein_tenant_tokens_total', WHERE, 'tenant'), '{{tenant}}')] }),
      curves({ title: 'Over a tenant’s limit', about: 'Requests that were refused (429) because their tenant had reached a limit of its own.',
        unit: 'reqps', stack: true, queries: [query(rate('skein_tenant_over_limit_total', WHERE, 'tenant, limit'), '{{tenant}} {{limit}}')] }),
      curves({ title: 'Requests without a valid key', about: 'missing: no key; wrong: not one of the file; held off: the address had sent many wrong ones.',
        unit: 'reqps', queries: [query(rate('skein_router_key_refusals_total', WHERE, 'reason'), '{{reason}}')] })),
    row('Load',
      curves({ title: 'Running and waiting', about: 'Requests in all processes. One in prefill also waits at its decode instance.',
        unit: 'none', width: 6, queries: [query(`sum (vllm:num_requests_running{${MODEL}})`, 'running'),
          query(`sum (vllm:num_requests_waiting{${MODEL}})`, 'waiting')] }),
      curves({ title: 'Bytes that requests hold', about: 'In each router, by its limit (--max-held-bytes); beyond it requests are refused (429).',
        unit: 'percentunit', width: 6, steps: [[0.9, 'red']],
        queries: [query(`skein_router_held_bytes{${WHERE}} / skein_router_held_bytes_limit{${WHERE}}`, NAME)] }),
      curves({ title: 'Prompt length', about: 'Tokens of finished choices’ prompts.', unit: 'none', width: 6,
        queries: [query(percentile(0.5, 'vllm:request_prompt_tokens', OF_ROUTER), 'p50'),
          query(percentile(0.95, 'vllm:request_prompt_tokens', OF_ROUTER), 'p95')] }),
      curves({ title: 'Answer length', about: 'Output tokens of finished choices.', unit: 'none', width: 6,
        queries: [query(percentile(0.5, 'vllm:request_generation_tokens', OF_ROUTER), 'p50'),
          query(percentile(0.95, 'vllm:request_generation_tokens', OF_ROUTER), 'p95')] })),
  ],
});
