// How prompts are planned over prefill instances, and how well the planner foresees.
import { board, curves, mean, number, query, ratio, row, percentile, rate, MODEL, OF_WORKER, RATE, WHERE } from './board.mjs';

const OF_PLANS = OF_WORKER;  // orchestrators have the same labels
const PLANS = rate('skein_plans_total', OF_PLANS);
const ESTIMATED = 'skein_plan_estimated_seconds_total';
const ACTUAL = 'skein_plan_actual_seconds_total';

export default board({
  uid: 'skein-planner',
  title: 'Skein / Planner',
  about: 'How prompts are cut into chunks and spread over prefill instances, and estimated against actual times. Plans are ' +
    'counted when their request has ended. Estimates need --profile at the orchestrator.',
  instances: 'skein_epoch',
  instanceLabel: 'Orchestrator',
  rows: [
    row('Now',
      number({ title: 'Plans / s', about: 'Prompts that were computed as planned, per second.', unit: 'ops', queries: [query(PLANS, 'plans')] }),
      number({ title: 'Chunks a plan', about: 'Mean number of chunks.', unit: 'none', decimals: 2,
        queries: [query(ratio(rate('skein_plan_chunks_total', OF_PLANS), PLANS), 'chunks')] }),
      number({ title: 'Sequence-parallel', about: 'Share of chunks that more than one instance computes together.', unit: 'percentunit',
        queries: [query('1 - ' + ratio(`(${rate('skein_plan_chunks_total', `sp="1", ${OF_PLANS}`)} or vector(0))`,
          rate('skein_plan_chunks_total', OF_PLANS)), 'SP size above 1')] }),
      number({ title: 'Actual by estimated', about: '1: as estimated; 2: twice as long. skeinctl profile and fit make a better profile.',
        unit: 'none', decimals: 2, steps: [[1.5, 'yellow'], [3, 'red']],
        queries: [query(ratio(rate(ACTUAL, OF_PLANS), rate(ESTIMATED, OF_PLANS)), 'actual / estimated')] }),
      number({ title: 'Replans', about: 'Plans that were given up and made anew in the last hour: an instance was lost or refused.',
        unit: 'none', decimals: 0, steps: [[1, 'yellow']],
        queries: [query(`sum (increase(skein_replans_total{${WHERE}}[1h]))`, 'last hour')] }),
      number({ title: 'Instances lost', about: 'Instances that the orchestrator lost in the last hour, of both roles.', unit: 'none', decimals: 0,
        steps: [[1, 'red']], queries: [query(`sum (increase(skein_instances_lost_total{${WHERE}}[1h]))`, 'last hour')] })),
    row('Plans',
      curves({ title: 'Plans by chunks', about: 'Plans a second, by the number of their chunks.', unit: 'ops', stack: true,
        queries: [query(rate('skein_plans_total', OF_PLANS, 'chunks'), 'chunks: {{chunks}}')] }),
      curves({ title: 'Chunks by SP size', about: 'Chunks a second, by the number of instances that compute them together.', unit: 'ops',
        stack: true, queries: [query(rate('skein_plan_chunks_total', OF_PLANS, 'sp'), 'SP {{sp}}')] }),
      curves({ title: 'Sequence-parallel plans and replans', about: 'Plans on several instances, and plans that were given up, per second.',
        unit: 'ops', queries: [query(rate('skein_spanning_plans_total', WHERE), 'on several instances'),
          query(rate('skein_replans_total', WHERE), 'given up')] })),
    row('Estimated and actual',
      curves({ title: 'Time of a plan', about: 'Mean time from the decision to the end of the last chunk.', unit: 's',
        queries: [query(ratio(rate(ESTIMATED, OF_PLANS), PLANS), 'estimated'),
          query(ratio(rate(ACTUAL, OF_PLANS), PLANS), 'actual'),
          query(ratio(rate('skein_plan_error_seconds_total', OF_PLANS), PLANS), 'mean difference')] }),
      curves({ title: 'Time to plan', about: 'From a choice’s submission to its plan; a part of its queue time.', unit: 's',
        queries: [query(mean('skein_request_plan_time_seconds', MODEL), 'mean'),
          query(percentile(0.99, 'skein_request_plan_time_seconds', MODEL), 'p99')] }),
      curves({ title: 'Requests by state', about: 'What the orchestrator follows. placed: prefill or decode runs.', unit: 'none', stack: true,
        queries: [query(`sum by (state) (skein_orchestrator_requests{${WHERE}})`, '{{state}}')] })),
    row('Exchange between the instances of a chunk',
      curves({ title: 'Bytes exchanged', about: 'KV and partial results between prefill instances that compute together.', unit: 'Bps',
        width: 12, queries: [query(rate('skein_comm_bytes_total', MODEL, 'path, ranks'), '{{path}}, {{ranks}} ranks')] }),
      curves({ title: 'Speed of exchange', about: 'Bytes by the seconds in the calls, waits for slower instances included.', unit: 'Bps',
        width: 12, queries: [query(ratio(rate('skein_comm_bytes_total', MODEL, 'path, ranks'),
          rate('skein_comm_busy_seconds_total', MODEL, 'path, ranks')), '{{path}}, {{ranks}} ranks')] })),
    row('Requests at the orchestrator',
      curves({ title: 'Submitted and failed', about: 'Requests that routers submitted, and that failed here or at a worker, per second.',
        unit: 'reqps', width: 12, queries: [query(rate('skein_requests_submitted_total', WHERE), 'submitted'),
          query(rate('skein_requests_failed_total', WHERE), 'failed')] }),
      curves({ title: 'Epochs', about: 'Epochs given out a second: one for each plan.', unit: 'ops', width: 12,
        queries: [query(`sum (clamp_min(deriv(skein_epoch{${WHERE}}[${RATE}]), 0))`, 'epochs')] })),
  ],
});
