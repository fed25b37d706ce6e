// Holds Kubernetes objects against strict schemas: an unknown field, a wrong type, a missing field or a kind that Kubernetes
// 1.36 does not have is an error.
//   node schema.mjs FILE...      SKEIN_NPM: the folder of tests/tools/fetch_npm; exit status 1: something does not hold
//   node schema.mjs --schema SCHEMA FILE...      holds the files against a JSON Schema instead
// Where the schemas come from: Kubernetes' own kinds from the models of npm's @kubernetes/client-node, those of the Prometheus
// operator from @kubernetes-models/prometheus-operator, the others from third_party/interfaces/*/*.schema.json. SKEIN_CRDS is a folder
// of CustomResourceDefinitions as their projects publish them: kinds that it has must hold these, too.
import fs from 'fs';
import path from 'path';
import {createRequire} from 'module';
import {pathToFileURL} from 'url';

const npm = process.env.SKEIN_NPM;
const load = createRequire(path.join(npm, 'package.json'));
const Ajv = load('ajv').default ?? load('ajv');
const YAML = load('yaml');

if (process.argv[2] === '--schema') {
  const validate = new Ajv({allErrors: true, strict: false}).compile(JSON.parse(fs.readFileSync(process.argv[3], 'utf8')));
  let faults = 0;
  for (const file of process.argv.slice(4)) {
    if (validate(YAML.parse(fs.readFileSync(file, 'utf8')))) continue;
    for (const e of validate.errors) console.log(`${file}: ${e.instancePath} ${e.message} ${JSON.stringify(e.params)}`);
    faults += validate.errors.length;
  }
  process.exit(faults ? 1 : 0);
}

const list = (dir, end) => fs.readdirSync(dir).filter((f) => f.endsWith(end)).sort();
const plain = {string: {type: 'string'}, boolean: {type: 'boolean'}, any: {}, object: {}, Date: {type: 'string'}};

// A type as TypeScript writes it, as JSON Schema; `named` says what a name stands for.
function schemaOf(type, format, named) {
  const array = type.match(/^Array<(.*)>$/);
  if (array) return {type: 'array', items: schemaOf(array[1], format, named)};
  const map = type.replace(/\s+/g, ' ').match(/^\{ \[key: string\]: (.*); \}$/);
  if (map) return {type: 'object', additionalProperties: schemaOf(map[1], format, named)};
  if (type === 'IntOrString') return {type: ['integer', 'string']};
  if (type === 'number') return {type: format === 'double' ? 'number' : 'integer'};
  if (/^"[^"]*"( \| "[^"]*")*$/.test(type)) return {enum: type.split(' | ').map((t) => JSON.parse(t))};
  return plain[type] ?? named(type);
}

const strict = (properties, required) => ({type: 'object', additionalProperties: false, properties, required});

async function kubernetesSchemas(definitions) {
  const dir = path.join(npm, 'node_modules/@kubernetes/client-node/dist/gen/models');
  let release = '';
  for (const file of list(dir, '.d.ts')) {
    const name = file.slice(0, -5);
    const source = fs.readFileSync(path.join(dir, file), 'utf8');
    release ||= source.match(/release-([\d.]+)/)?.[1] ?? '';
    if (!/export declare class/.test(source)) continue;
    const model = (await import(pathToFileURL(path.join(dir, name + '.js')).href))[name];
    if (!model?.attributeTypeMap) continue;
    const always = new Set([...source.matchAll(/^\s+'([^']+)':/gm)].map((m) => m[1]));
    const properties = {};
    for (const a of model.attributeTypeMap) {
      properties[a.baseName] = schemaOf(a.type, a.format, (t) => ({$ref: '#/definitions/' + t}));
    }
    const required = model.attributeTypeMap.filter((a) => always.has(a.name)).map((a) => a.baseName);
    definitions[name] = strict(properties, required);
  }
  // A quantity is written as text or as a number.
  const quantities = {type: 'object', additionalProperties: {type: ['string', 'number']}};
  for (const name of ['V1ResourceRequirements', 'V1VolumeResourceRequirements', 'V1ResourceQuotaSpec']) {
    for (const field of ['limits', 'requests', 'hard']) {
      if (definitions[name]?.properties[field]) definitions[name].properties[field] = quantities;
    }
  }
  for (const name of ['V1MicroTime', 'IntOrString']) definitions[name] ??= {};
  return release;
}

function prometheusSchemas(definitions) {
  const dir = path.join(npm, 'node_modules/@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1');
  const long = /^I?ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1(\w+)$/;
  const known = new Set(list(dir, '.d.ts').map((f) => f.slice(0, -5)));
  const named = (type) => {
    const own = type.match(long)?.[1];
    if (own && known.has(own)) return {$ref: '#/definitions/Prometheus.' + own};
    if (/LabelSelector$/.test(type)) return {$ref: '#/definitions/V1LabelSelector'};
    if (/ObjectMeta$/.test(type)) return {$ref: '#/definitions/V1ObjectMeta'};
    return {};
  };
  for (const name of known) {
    const source = fs.readFileSync(path.join(dir, name + '.d.ts'), 'utf8').replace(/\/\*[^]*?\*\//g, '');
    const body = source.match(new RegExp(`export declare class ${name} [^{]*\\{([^]*?)\\n\\}`))?.[1];
    const properties = {};
    const required = [];
    for (const m of (body ?? '').matchAll(/^    "([^"]+)"(\??): ((?:[^;{]|\{[^}]*\})*);/gm)) {
      properties[m[1]] = schemaOf(m[3].trim(), '', named);
      if (!m[2]) required.push(m[1]);
    }
    definitions['Prometheus.' + name] = body ? strict(properties, required) : {};
  }
}

function interfaceSchemas(definitions) {
  const kinds = {};
  const dir = path.join(process.env.SKEIN_INTERFACES ?? 'third_party/interfaces');
  for (const folder of fs.existsSync(dir) ? fs.readdirSync(dir).sort() : []) {
    if (!fs.statSync(path.join(dir, folder)).isDirectory()) continue;
    for (const file of list(path.join(dir, folder), '.schema.json')) {
      const schema = JSON.parse(fs.readFileSync(path.join(dir, folder, file), 'utf8'));
      Object.assign(definitions, schema.definitions);
      Object.assign(kinds, schema.kinds);
    }
  }
  return kinds;
}

// An openAPIV3Schema as a JSON Schema that refuses what it does not name.
function strictly(schema) {
  const out = {...schema};
  if (out['x-kubernetes-int-or-string']) return {type: ['integer', 'string']};
  for (const key of Object.keys(out)) if (key.startsWith('x-kubernetes-') || key === 'format') delete out[key];
  for (const key of ['items', 'additionalProperties']) if (out[key] instanceof Object) out[key] = strictly(out[key]);
  for (const key of ['allOf', 'anyOf', 'oneOf']) if (out[key]) out[key] = out[key].map(strictly);
  if (!out.properties) return out;
  out.properties = Object.fromEntries(Object.entries(out.properties).map(([name, inner]) => [name, strictly(inner)]));
  if (!schema['x-kubernetes-preserve-unknown-fields']) out.additionalProperties ??= false;
  return out;
}

function publishedSchemas(definitions) {
  const kinds = {};
  const dir = process.env.SKEIN_CRDS;
  for (const file of dir ? list(dir, '.yaml') : []) {
    for (const document of YAML.parseAllDocuments(fs.readFileSync(path.join(dir, file), 'utf8'))) {
      const crd = document.toJS();
      if (crd?.kind !== 'CustomResourceDefinition') continue;
      for (const version of crd.spec.versions) {
        const name = `Published.${crd.spec.group}.${version.name}.${crd.spec.names.kind}`;
        definitions[name] = strictly(version.schema.openAPIV3Schema);
        definitions[name].properties.metadata = {$ref: '#/definitions/V1ObjectMeta'};
        kinds[`${crd.spec.group}/${version.name}/${crd.spec.names.kind}`] = name;
      }
    }
  }
  return kinds;
}

const capital = (text) => text && text[0].toUpperCase() + text.slice(1);

function definitionOf(object, definitions, kinds) {
  const {apiVersion, kind} = object;
  if (kinds[`${apiVersion}/${kind}`]) return kinds[`${apiVersion}/${kind}`];
  if (apiVersion === 'monitoring.coreos.com/v1') return 'Prometheus.' + kind;
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  const native = group === '' || !group.includes('.') || group.endsWith('.k8s.io');
  const names = [capital(version) + kind, capital(group.split('.')[0]) + capital(version) + kind];
  return native ? names.find((n) => definitions[n]) : undefined;
}

const definitions = {};
const release = await kubernetesSchemas(definitions);
prometheusSchemas(definitions);
const kinds = interfaceSchemas(definitions);
const published = publishedSchemas(definitions);
const ajv = new Ajv({allErrors: true, strict: false});
ajv.addSchema({definitions}, 'all');

let bad = 0;
let good = 0;
const complain = (text) => {
  bad += 1;
  console.log(text);
};
for (const file of process.argv.slice(2)) {
  for (const document of YAML.parseAllDocuments(fs.readFileSync(file, 'utf8'))) {
    if (document.errors.length) {
      complain(`${file}: ${document.errors[0].message}`);
      continue;
    }
    const object = document.toJS();
    if (!object) continue;
    const what = `${file}: ${object.apiVersion} ${object.kind} ${object.metadata?.name}`;
    const name = definitionOf(object, definitions, kinds);
    if (!name || !definitions[name]) {
      complain(`${what}: there is no such kind`);
      continue;
    }
    const faults = [];
    for (const one of [name, published[`${object.apiVersion}/${object.kind}`]]) {
      const validate = one && ajv.getSchema('all#/definitions/' + one);
      if (validate && !validate(object)) faults.push(...validate.errors);
    }
    if (!faults.length) good += 1;
    for (const e of faults) complain(`${what}: ${e.instancePath} ${e.message} ${JSON.stringify(e.params)}`);
  }
}
console.log(`Kubernetes ${release}, ${Object.keys(definitions).length} schemas, ${Object.keys(published).length} of them published ` +
    `definitions: ${good} objects hold, ${bad} faults`);
process.exit(bad ? 1 : 0);
