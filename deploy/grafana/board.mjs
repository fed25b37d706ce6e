// What all of Skein's dashboards share: variables, annotations, and short ways to write a panel with Grafana's foundation SDK.
// The packages lie in the folder that SKEIN_NPM names (tests/tools/fetch_npm).
import { createRequire } from 'node:module';

const require = createRequire(process.env.SKEIN_NPM + '/');
const sdk = (part) => require('@grafana/grafana-foundation-sdk/' + part);
const dashboard = sdk('dashboard');
const common = sdk('common');
const prometheus = sdk('prometheus');

const DATA_SOURCE = { type: 'prometheus', uid: '${datasource}' };
const WIDTH = 24;
const JOBS = '.*skein.*';  // scrape jobs of Skein

// Filters of PromQL, for the braces of a selector.
export const DEPLOYMENT = 'namespace=~"$namespace", job=~"$job"';
export const MODEL = `${DEPLOYMENT}, model_name=~"$model"`;
export const WHERE = `${DEPLOYMENT}, node=~"$node", instance=~"$instance"`;
export const OF_WORKER = `${WHERE}, model_name=~"$model"`;
export const RECORDED = 'namespace=~"$namespace", model_name=~"$model"';  // rules sum over jobs
export const RATE = '$__rate_interval';

// What tells processes apart, and its legend: on Kubernetes everybody knows the pod, and a pod can have several processes.
export const PROCESS = 'namespace, pod, instance';
export const NAME = '{{pod}} {{instance}}';

export const rate = (counter, filter, by = '') => `sum${by && ` by (${by})`} (rate(${counter}{${filter}}[${RATE}]))`;
// Nothing, rather than NaN, while there is nothing to divide by.
export const ratio = (part, whole) => `${part} / (${whole} > 0)`;
// PromQL of percentile `p` of a histogram; nothing while it gets no values.
export const percentile = (p, histogram, filter, by = '') =>
  `histogram_quantile(${p}, sum by (le${by && ', ' + by}) (rate(${histogram}_bucket{${filter}}[${RATE}]))) >= 0`;
export const mean = (histogram, filter, by = '') =>
  ratio(rate(histogram + '_sum', filter, by), rate(histogram + '_count', filter, by));
// A process's series with the label `service` (router, orchestrator, prefill-worker, decode-worker); only those of `service`, if given.
export const withService = (series, service) =>
  `${series} * on (namespace, job, instance) group_left (service) skein_build_info${service ? `{service="${service}"}` : ''}`;

// One query of a panel.
export const query = (expr, legend) => ({ expr, legend });

const COLORS = { green: 'green', yellow: 'yellow', red: 'red' };

// Colours from `from` on: thresholds([0.8, 'yellow'], [0.9, 'red']).
const stepsOf = (steps) => [{ value: null, color: COLORS.green }, ...steps.map(([value, color]) => ({ value, color }))];

const targetsOf = (queries, instant, table) => queries.map(({ expr, legend }, i) => {
  const target = new prometheus.DataqueryBuilder().refId(String.fromCharCode(65 + i)).expr(expr).legendFormat(legend);
  if (instant) target.instant();
  if (table) target.format(prometheus.PromQueryFormat.Table);
  return target;
});

const describe = (builder, { title, about, unit, queries, steps = [], decimals, instant, table }) => {
  builder.title(title).description(about).datasource(DATA_SOURCE).targets(targetsOf(queries, instant, table)).unit(unit)
    .thresholds(new dashboard.ThresholdsConfigBuilder().mode('absolute').steps(stepsOf(steps)));
  if (decimals !== undefined) builder.decimals(decimals);
  return builder;
};

// Curves over time. `stack`: one upon the other. `max`: the axis ends there. Steps of colour show as lines.
export function curves(options) {
  const { stack = false, max, steps = [], width = 8, height = 7 } = options;
  const { PanelBuilder } = sdk('timeseries');
  const panel = describe(new PanelBuilder(), options).span(width).height(height).min(0).lineWidth(1.5).showPoints('never')
    .fillOpacity(stack ? 60 : 8).spanNulls(60000)
    .legend(new common.VizLegendOptionsBuilder().displayMode('table').placement('bottom').showLegend(true)
      .calcs(['lastNotNull', 'max']))
    .tooltip(new common.VizTooltipOptionsBuilder().mode('multi').sort('desc'));
  if (stack) panel.stacking(new common.StackingConfigBuilder().mode('normal').group('A'));
  if (max !== undefined) panel.max(max);
  if (steps.length) panel.thresholdsStyle(new common.GraphThresholdsStyleConfigBuilder().mode('dashed'));
  return panel;
}

// One number, with the curve behind it. `beside`: legend and unit of a query that is shown beside it, without colours.
export function number(options) {
  const { width = 4, height = 4, beside } = options;
  const { PanelBuilder } = sdk('stat');
  const panel = describe(new PanelBuilder(), options).span(width).height(height).graphMode('area')
    .colorMode(options.steps ? 'value' : 'none').textMode('value_and_name').justifyMode('auto').noValue('–')
    .reduceOptions(new common.ReduceDataOptionsBuilder().calcs(['lastNotNull']).fields('').values(false));
  if (beside) {
    panel.overrideByName(beside.legend, [{ id: 'unit', value: beside.unit },
      { id: 'color', value: { mode: 'fixed', fixedColor: 'text' } }]);
  }
  return panel;
}

// A table with one row for each instance; each query is a column, headed by its legend, or `hidden`.
export function table(options) {
  const { width = WIDTH, height = 8, queries } = options;
  const { PanelBuilder } = sdk('table');
  const panel = describe(new PanelBuilder(), { ...options, instant: true, table: true }).span(width).height(height)
    .withTransformation({ id: 'joinByField', options: { byField: 'instance', mode: 'outer' } })
    .withTransformation({
      id: 'organize',
      options: {
        excludeByName: Object.fromEntries([['Time', true], ...queries.map((_, i) => ['Time ' + (i + 1), true]),
          ...queries.flatMap(({ hidden }, i) => (hidden ? [[valueOf(i), true]] : []))]),
        renameByName: Object.fromEntries(queries.map(({ legend }, i) => [valueOf(i), legend])),
      },
    });
  queries.forEach(({ legend, unit }) => {
    if (unit) panel.overrideByName(legend, [{ id: 'unit', value: unit }]);
  });
  return panel;
}

const valueOf = (i) => 'Value #' + String.fromCharCode(65 + i);

export const row = (title, ...panels) => ({ title, panels });

const choice = (name, label, series, all = '.*') => new dashboard.QueryVariableBuilder(name).label(label)
  .datasource(DATA_SOURCE).query(`label_values(${series})`).refresh(2).sort(1).multi(true).includeAll(true).allValue(all)
  .current({ selected: true, text: ['All'], value: ['$__all'] });

// A number that the reader picks; `values` are boundaries of the histogram that it is compared with.
export const bound = (name, label, values, now) => new dashboard.CustomVariableBuilder(name).label(label)
  .values(values.join(',')).options(values.map((v) => ({ text: v, value: v, selected: v === now })))
  .current({ selected: true, text: now, value: now }).multi(false).includeAll(false);

const annotation = (name, color, expr, title, text, extra = {}) => ({
  name, enable: true, iconColor: color, datasource: DATA_SOURCE, expr, step: '15s', titleFormat: title, textFormat: text, ...extra,
});

// `instances`: the series whose instances can be chosen.
export function board({ uid, title, about, instances, instanceLabel, bounds = [], rows }) {
  const built = new dashboard.DashboardBuilder(title).uid(uid).description(about).tags(['skein']).refresh('10s')
    .time({ from: 'now-30m', to: 'now' }).tooltip(1).editable()
    .link(new dashboard.DashboardLinkBuilder('Skein').type('dashboards').tags(['skein']).asDropdown(false).includeVars(true)
      .keepTime(true))
    .withVariable(new dashboard.DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'))
    .withVariable(choice('namespace', 'Namespace', `up{job=~"${JOBS}"}, namespace`))
    .withVariable(choice('job', 'Job', `up{job=~"${JOBS}", namespace=~"$namespace"}, job`, JOBS))
    .withVariable(choice('model', 'Model', `vllm:cache_config_info{${DEPLOYMENT}}, model_name`))
    .withVariable(choice('node', 'Node', `skein_build_info{${DEPLOYMENT}}, node`))
    .withVariable(choice('instance', instanceLabel, `${instances}{${DEPLOYMENT}, node=~"$node"}, instance`));
  bounds.forEach((variable) => built.withVariable(variable));
  rows.forEach(({ title: name, panels }) => {
    built.withRow(new dashboard.RowBuilder(name));
    panels.forEach((panel) => built.withPanel(panel));
  });
  const out = built.build();
  out.annotations = {
    list: [
      annotation('Process starts', 'blue',
        'process_start_time_seconds * on (namespace, job, instance) group_left (service, version) skein_build_info * 1000',
        '{{service}} {{version}} starts', NAME, { useValueForTime: true }),
      annotation('Instances lost', 'red', 'increase(skein_instances_lost_total[1m]) > 0', '{{role}} instance lost',
        '{{model_name}}; skeinctl status names it'),
      annotation('Alerts', 'orange', 'ALERTS{alertname=~"Skein.*", alertstate="firing"}', '{{alertname}} ({{severity}})',
        '{{namespace}} {{pod}} {{instance}} {{model_name}}'),
    ],
  };
  return out;
}
