// How decode instances of a node work together: who is bound, the switches, and what bound groups compute.
import { board, curves, number, query, ratio, row, percentile, rate, MODEL, OF_WORKER, WHERE } from './board.mjs';

const TOGETHER = 'mode=~"tp|sp|sp_tp"';
const STEPS = 'skein_engine_steps_total';
const SWITCHES = 'skein_formation_switches_total';
const GAPS = 'skein_formation_stream_gap_seconds';
const hour = (filter) => `sum (increase(${SWITCHES}{${filter}, ${WHERE}}[1h]))`;
// The instances of all groups less those that work alone, so that there is a 0 where nothing is bound.
const BOUND = `sum (skein_formation{${OF_WORKER}}) - sum (skein_formation{formation="independent", ${OF_WORKER}})`;
// Of all steps, by the same labels, so that there is a 0 where no group ran.
const together = (counter) => `(${rate(counter, `${TOGETHER}, ${MODEL}`)} or vector(0))`;

export default board({
  uid: 'skein-formations',
  title: 'Skein / Formations',
  about: 'Decode instances of a node that are bound together: how many, each bind and release with its times, and the steps that the ' +
    'groups run. skeinctl formation says why.',
  instances: 'skein_epoch',
  instanceLabel: 'Orchestrator',
  rows: [
    row('Now',
      number({ title: 'Bound', about: 'Instances that are bound with others.', unit: 'none', decimals: 0, queries: [query(BOUND, 'bound')] }),
      number({ title: 'Independent', about: 'Instances that work alone, those of prefill included.', unit: 'none', decimals: 0,
        queries: [query(`sum (skein_formation{formation="independent", ${OF_WORKER}})`, 'independent')] }),
      number({ title: 'Steps together', about: 'Share of all steps that bound groups run. Each member counts its part.', unit: 'percentunit',
        queries: [query(ratio(together(STEPS), rate(STEPS, MODEL)), 'of all steps')] }),
      number({ title: 'Binds', about: 'Binds that were done in the last hour.', unit: 'none', decimals: 0,
        queries: [query(hour('kind="bind", outcome="done"'), 'last hour')] }),
      number({ title: 'Switches that failed', about: 'In the last hour: binds that were not done, and groups that ended by themselves.',
        unit: 'none', decimals: 0, steps: [[1, 'yellow'], [10, 'red']],
        queries: [query(hour('outcome=~"aborted|failed"'), 'last hour')] }),
      number({ title: 'Unanswered', about: 'Orders to end a formation in the last hour that an instance did not answer in time.',
        unit: 'none', decimals: 0, steps: [[1, 'red']],
        queries: [query(`sum (increase(skein_formation_unanswered_total{${WHERE}}[1h]))`, 'last hour')] })),
    row('Formations',
      curves({ title: 'Instances by formation', about: 'How many instances are in each formation, prefill instances included.', unit: 'none', stack: true, width: 6,
        queries: [query(`sum by (formation) (skein_formation{${OF_WORKER}})`, '{{formation}}')] }),
      curves({ title: 'Instances by group', about: 'How many instances of each group work alone.', unit: 'none', width: 6,
        queries: [query(`sum by (group) (skein_formation{formation="independent", ${OF_WORKER}})`, '{{group}}')] }),
      curves({ title: 'Switches', about: 'Binds and releases in five minutes, by outcome.', unit: 'none', stack: true, width: 6,
        queries: [query(`sum by (kind, outcome) (increase(${SWITCHES}{${WHERE}}[5m]))`, '{{kind}}: {{outcome}}')] }),
      curves({ title: 'Changes of the mode', about: 'Of instances that share their weights, in five minutes, by the new mode and outcome.', unit: 'none',
        stack: true, width: 6,
        queries: [query(`sum by (to, outcome) (increase(skein_shared_mode_changes_total{${WHERE}}[5m]))`, '{{to}}: {{outcome}}')] })),
    row('Times of a switch',
      curves({ title: 'Cut-over', about: 'From the commit until every member can run a step of the group.', unit: 's', width: 6,
        queries: [query(percentile(0.5, 'skein_formation_cut_over_seconds', WHERE), 'p50'),
          query(percentile(0.99, 'skein_formation_cut_over_seconds', WHERE), 'p99')] }),
      curves({ title: 'Drain', about: 'Release: until the last bound sequence has left. Bind: until own sequences, where they end first, have ended.', unit: 's',
        width: 6,
        queries: [query(percentile(0.5, 'skein_formation_drain_seconds', WHERE, 'kind'), '{{kind}}, p50'),
          query(percentile(0.99, 'skein_formation_drain_seconds', WHERE, 'kind'), '{{kind}}, p99')] }),
      curves({ title: 'Gap of a switch', about: 'What streams see of binds and releases: from the last token before to the first one after. Without binds that pause ' +
        'what instances run alone (hard).', unit: 's', width: 6,
        queries: [query(percentile(0.5, GAPS, `own!="hard", ${MODEL}`, 'kind'), '{{kind}}, p50'),
          query(percentile(0.99, GAPS, `own!="hard", ${MODEL}`, 'kind'), '{{kind}}, p99')] }),
      curves({ title: 'Gap between two tokens', about: 'What streams see, switches included.', unit: 's', width: 6,
        queries: [query(percentile(0.5, 'vllm:inter_token_latency_seconds', MODEL), 'p50'),
          query(percentile(0.99, 'vllm:inter_token_latency_seconds', MODEL), 'p99')] })),
    row('What they compute',
      curves({ title: 'Steps by mode', about: 'Steps a second. own: of one instance; tp, sp, sp_tp: of bound groups, each member counts its part; ring: of prompts; ring_tp: of prompts, with the dense part shared.',
        unit: 'ops', stack: true, queries: [query(rate(STEPS, MODEL, 'mode, ranks'), '{{mode}}, {{ranks}} ranks')] }),
      curves({ title: 'Tokens by mode', about: 'Tokens a second that these steps ran; in a group each member counts the whole batch.', unit: 'ops',
        stack: true, queries: [query(rate('skein_engine_step_tokens_total', MODEL, 'mode, ranks'), '{{mode}}, {{ranks}} ranks')] }),
      curves({ title: 'Bytes of collectives and ring steps', about: 'What instances exchange in steps together, by path and group size.', unit: 'Bps',
        queries: [query(rate('skein_comm_bytes_total', MODEL, 'path, ranks'), '{{path}}, {{ranks}} ranks')] }),
      curves({ title: 'Wait for a decode step', about: 'From when a request\'s KV had arrived until the first decode step with it began.', unit: 's',
        width: 24,
        queries: [query(percentile(0.5, 'skein_request_decode_queue_time_seconds', MODEL), 'p50'),
          query(percentile(0.99, 'skein_request_decode_queue_time_seconds', MODEL), 'p99')] })),
  ],
});
