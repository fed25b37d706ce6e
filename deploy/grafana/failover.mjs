// What dies and what becomes of it: who leads, streams that went on elsewhere, instances that are slow or hang, and what clients saw.
import { board, curves, number, query, row, percentile, rate, DEPLOYMENT, MODEL, NAME, PROCESS, WHERE } from './board.mjs';

const LEADER = 'skein_orchestrator_leader';
const RESUMES = 'skein_router_resumes_total';
const MOVES = 'skein_router_drain_moves_total';
const REATTACHED = 'skein_router_reattached_streams_total';
const SLOW = 'skein_instances_slow';
const GAP = 'vllm:inter_token_latency_seconds';
const hour = (counter, filter) => `sum (increase(${counter}{${filter}}[1h]))`;
// Of the orchestrators that lead: one that stands by knows nothing.
const leading = (gauge) => `max by (namespace, cell) (${gauge}{${WHERE}})`;

export default board({
  uid: 'skein-failover',
  title: 'Skein / Failover',
  about: 'Who leads and since when, what was lost and went on elsewhere, instances that are slow or hang, and the gaps that clients saw. ' +
    'docs/failures.md says what each fault costs.',
  instances: 'skein_epoch',
  instanceLabel: 'Orchestrator',
  rows: [
    row('Now',
      number({ title: 'Led for', about: 'Time since the orchestrator that leads began to lead, for each cell.', unit: 's', decimals: 0,
        queries: [query(`time() - ${leading('skein_orchestrator_leading_since_seconds')}`, '{{cell}}')] }),
      number({ title: 'Generation', about: 'Of the leadership, for each cell. Each one has a higher generation; 0: none leads.', unit: 'none', decimals: 0,
        queries: [query(leading('skein_orchestrator_generation'), '{{cell}}')] }),
      number({ title: 'Elections', about: 'Leaderships that began in the last hour. With one orchestrator without a store: its starts.', unit: 'none', decimals: 0,
        steps: [[2, 'yellow'], [6, 'red']],
        queries: [query(hour('skein_orchestrator_leaderships_total', WHERE), 'last hour')] }),
      number({ title: 'Went on elsewhere', about: 'Times in the last hour that an accepted choice was tried again at other instances, moved ones included.',
        unit: 'none', decimals: 0, queries: [query(hour(RESUMES, DEPLOYMENT), 'last hour')] }),
      number({ title: 'Instances lost', about: 'In the last hour: their lease expired, or they were replaced.', unit: 'none', decimals: 0,
        steps: [[1, 'yellow'], [10, 'red']], queries: [query(`${hour('skein_instances_lost_total', WHERE)} or vector(0)`, 'last hour')] }),
      number({ title: 'Parked', about: 'Requests that are accepted and wait because no prefill instance can take them now.', unit: 'none', decimals: 0,
        steps: [[1, 'yellow'], [100, 'red']], queries: [query(`sum (skein_orchestrator_requests{state="parked", ${WHERE}})`, 'requests')] })),
    row('Who leads',
      curves({ title: 'Leader', about: '1 while an orchestrator leads its cell. The sum over a cell must be 1 but for moments.', unit: 'none', max: 1,
        queries: [query(`max by (${PROCESS}, cell) (${LEADER}{${WHERE}})`, `{{cell}}: ${NAME}`)] }),
      curves({ title: 'Changes of the leader', about: 'Leaderships that began in five minutes, by cell.', unit: 'none', stack: true,
        queries: [query(`sum by (cell) (increase(skein_orchestrator_leaderships_total{${WHERE}}[5m]))`, '{{cell}}')] }),
      curves({ title: 'Left of the lease', about: 'Time after which the leader stops to lead unless it renews its lease, which it does every quarter of it. Near 0: the store is slow ' +
        'or the process stands still. 0 at orchestrators that stand by, and without --store.', unit: 's',
        queries: [query(`max by (${PROCESS}, cell) (min_over_time(skein_orchestrator_lease_left_seconds{${WHERE}}[1m]))`, `{{cell}}: ${NAME}`)] })),
    row('What became of requests',
      curves({ title: 'Choices that went on elsewhere', about: 'Times a second that routers tried a choice again: because its instances were lost, or moved by choice because its decode-worker ' +
        'drains. Attached again: the connection alone broke, and the answer went on where it was.', unit: 'ops', stack: true,
        queries: [query(`${rate(RESUMES, DEPLOYMENT)} - ${rate(MOVES, DEPLOYMENT)}`, 'lost'), query(rate(MOVES, DEPLOYMENT), 'moved by a drain'),
          query(rate(REATTACHED, DEPLOYMENT), 'attached again')] }),
      curves({ title: 'What delayed requests', about: 'Requests a second by reason, as the orchestrator counts them (docs/metrics.md, skein_degraded_total).', unit: 'ops', stack: true,
        queries: [query(rate('skein_degraded_total', WHERE, 'reason'), '{{reason}}')] }),
      curves({ title: 'Streams that drains ask to move', about: 'Asked: by decode-workers that drain, a second. Moved: by routers. If only the first one grows, routers cannot reach the orchestrator.',
        unit: 'ops', queries: [query(rate('skein_drain_asks_total', MODEL), 'asked'), query(rate(MOVES, DEPLOYMENT), 'moved')] }),
      curves({ title: 'Requests that wait', about: 'Parked: no prefill instance can take them. Planning: they have no plan yet. Submitted: choices at routers that have no decode instance yet.', unit: 'none',
        queries: [query(`sum by (state) (skein_orchestrator_requests{state=~"parked|planning", ${WHERE}})`, '{{state}}'),
          query(`sum (skein_router_submitted{${DEPLOYMENT}})`, 'submitted')] }),
      curves({ title: 'Failed attempts and replans', about: 'Attempts a second that failed at the orchestrator or at a worker, most of which are followed by another one; and plans that were replaced.', unit: 'ops',
        queries: [query(rate('skein_requests_failed_total', WHERE), 'attempts failed'), query(rate('skein_replans_total', WHERE), 'replans')] }),
      curves({ title: 'Errors that clients saw', about: 'Answers of the API a second with a server error (5xx).', unit: 'reqps',
        queries: [query(`${rate('skein_router_answers_total', `status=~"5..", ${DEPLOYMENT}`)} or vector(0)`, '5xx')] })),
    row('Instances that fail in part',
      curves({ title: 'Slow instances', about: 'Beside their peers: slow ones get less, suspect ones nothing new, those set aside nothing.', unit: 'none', stack: true,
        queries: [query(`sum by (role, pace) (${SLOW}{${WHERE}})`, '{{role}}: {{pace}}')] }),
      curves({ title: 'Suspected, set aside, hung', about: 'In five minutes: instances that became suspect, that were set aside, and whose requests went on elsewhere because their step did not end.', unit: 'none',
        queries: [query(`sum (increase(skein_instances_suspected_total{${WHERE}}[5m]))`, 'suspected'),
          query(`sum (increase(skein_instances_set_aside_total{${WHERE}}[5m]))`, 'set aside'),
          query(`sum (increase(skein_instances_hung_total{${WHERE}}[5m]))`, 'hung')] }),
      curves({ title: 'Missed and parted', about: 'Missed: decode instances that only the orchestrator misses; they keep their streams and get nothing new. Parted: pairs of a prefill and a decode instance ' +
        'that do not reach each other.', unit: 'none',
        queries: [query(`sum (skein_instances_missed{${WHERE}})`, 'missed'), query(`sum (skein_unreached_pairs{${WHERE}})`, 'parted pairs')] })),
    row('What clients saw',
      curves({ title: 'Gaps between tokens', about: 'Between two tokens of one choice, all streams.', unit: 's', width: 12,
        queries: [0.5, 0.99, 0.999].map((p) => query(percentile(p, GAP, MODEL), `p${p * 100}`)) }),
      curves({ title: 'Long gaps', about: 'Gaps a second above 0.5 s, 1 s and 2.5 s.', unit: 'ops', width: 12,
        queries: ['0.5', '1', '2.5'].map((bound) =>
          query(`${rate(GAP + '_count', MODEL)} - ${rate(GAP + '_bucket', `le=~"${bound}(\\\\.0)?", ${MODEL}`)}`, `above ${bound} s`)) })),
  ],
});
