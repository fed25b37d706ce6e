// Uses Skein's files and batches through OpenAI's own JavaScript client.
//   node batch_client.cjs BASE_URL MODEL [computes]      SKEIN_NPM: the folder with node_modules/openai
// With `computes` a cluster is there that computes batches. Prints one line a test; exit status 1 when one failed.
'use strict';
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const runCases = require('./run_cases.cjs');

const load = createRequire(path.join(process.env.SKEIN_NPM, 'package.json'));
const { OpenAI, toFile } = load('openai');
const [baseURL, model, computes] = process.argv.slice(2);
const client = new OpenAI({ apiKey: 'none', baseURL, maxRetries: 0, timeout: 60_000 });
const endpoint = '/v1/chat/completions';

const line = (id, content) => JSON.stringify({
  custom_id: id, method: 'POST', url: endpoint,
  body: { model, messages: [{ role: 'user', content }], max_tokens: 8, temperature: 0 },
});
const lines = (count) => Array.from({ length: count }, (_, i) => line(`line-${i}`, `Hello ${i}`)).join('\n') + '\n';
const upload = async (text, more = {}) => client.files.create({ file: await toFile(Buffer.from(text), 'requests.jsonl'), purpose: 'batch', ...more });

async function fails(promise, type, expected) {
  const error = await promise.then(() => null, (e) => e);
  assert.ok(error instanceof type, String(error));
  for (const [key, value] of Object.entries(expected)) assert.equal(error[key], value, `${key} of ${error}`);
}

const tests = {
  async 'files: create, retrieve, content, delete'() {
    const text = lines(3);
    const file = await upload(text);
    assert.match(file.id, /^file-/);
    assert.deepEqual([file.object, file.bytes, file.filename, file.purpose], ['file', text.length, 'requests.jsonl', 'batch']);
    assert.ok(file.expires_at > file.created_at);
    assert.deepEqual(await client.files.retrieve(file.id), file);
    assert.equal(await (await client.files.content(file.id)).text(), text);
    assert.deepEqual(await client.files.delete(file.id), { id: file.id, object: 'file', deleted: true });
    await fails(client.files.retrieve(file.id), OpenAI.NotFoundError, { status: 404, param: 'id' });
    await fails(client.files.content(file.id), OpenAI.NotFoundError, { status: 404 });
  },

  async 'files: from a stream, with the end named behind the file'() {
    const folder = fs.mkdtempSync(path.join(process.env.TEST_TMPDIR || os.tmpdir(), 'batch-'));
    const name = path.join(folder, 'long.jsonl');
    const text = lines(20_000);
    fs.writeFileSync(name, text);
    const before = Date.now() / 1000;
    const file = await client.files.create({ file: fs.createReadStream(name), purpose: 'batch', expires_after: { anchor: 'created_at', seconds: 3600 } });
    fs.rmSync(folder, { recursive: true });
    assert.equal(file.bytes, text.length);
    assert.equal(file.filename, 'long.jsonl');
    assert.ok(file.expires_at >= Math.floor(before) + 3600 && file.expires_at <= Date.now() / 1000 + 3600, String(file.expires_at));
    assert.equal(await (await client.files.content(file.id)).text(), text);
  },

  async 'files: pages follow one another'() {
    const ids = [];
    for (let i = 0; i < 5; i += 1) ids.push((await upload(lines(1))).id);
    const seen = [];
    for await (const file of client.files.list({ limit: 2, purpose: 'batch' })) seen.push(file.id);
    for (const id of ids) assert.equal(seen.filter((other) => other === id).length, 1);
    const page = await client.files.list({ limit: 2, order: 'asc' });
    assert.equal(page.data.length, 2);
    assert.ok(page.has_more && page.hasNextPage());
  },

  async 'files: errors'() {
    await fails(upload(lines(1), { purpose: 'fine-tune' }), OpenAI.BadRequestError, { status: 400, param: 'purpose', type: 'invalid_request_error' });
    await fails(client.files.list({ limit: 0 }), OpenAI.BadRequestError, { status: 400, param: 'limit' });
    await fails(client.files.delete('file-none'), OpenAI.NotFoundError, { status: 404 });
  },

  async 'batches: create, retrieve, list, cancel'() {
    const file = await upload(lines(2));
    const ids = [];
    for (let i = 0; i < 3; i += 1) {
      const batch = await client.batches.create({ input_file_id: file.id, endpoint, completion_window: '24h', metadata: { number: String(i) } });
      assert.match(batch.id, /^batch_/);
      assert.deepEqual([batch.object, batch.endpoint, batch.input_file_id, batch.completion_window], ['batch', endpoint, file.id, '24h']);
      assert.equal(batch.expires_at - batch.created_at, 86_400);
      assert.deepEqual(Object.keys(batch.request_counts), ['total', 'completed', 'failed']);
      ids.push(batch.id);
    }
    assert.deepEqual((await client.batches.retrieve(ids[1])).metadata, { number: '1' });
    const seen = [];
    for await (const batch of client.batches.list({ limit: 2 })) seen.push(batch.id);
    assert.deepEqual(seen.filter((id) => ids.includes(id)), [...ids].reverse());
    const cancelled = await client.batches.cancel(ids[2]).catch((error) => error);  // it may have ended
    assert.ok(['cancelling', 'cancelled'].includes(cancelled.status) || cancelled.status === 409, String(cancelled.status));
  },

  async 'batches: errors'() {
    const file = await upload(lines(1));
    const body = { input_file_id: file.id, endpoint, completion_window: '24h' };
    await fails(client.batches.retrieve('batch_none'), OpenAI.NotFoundError, { status: 404 });
    await fails(client.batches.cancel('batch_none'), OpenAI.NotFoundError, { status: 404 });
    await fails(client.batches.create({ ...body, input_file_id: 'file-none' }), OpenAI.BadRequestError, { param: 'input_file_id' });
    await fails(client.batches.create({ ...body, endpoint: '/v1/embeddings' }), OpenAI.BadRequestError, { param: 'endpoint' });
    await fails(client.batches.create({ ...body, completion_window: 'soon' }), OpenAI.BadRequestError, { param: 'completion_window' });
    await fails(client.batches.create({ ...body, metadata: { long: 'x'.repeat(513) } }), OpenAI.BadRequestError, { param: 'metadata' });
  },
};

if (computes) {
  tests['batches: the answers are those of the same requests online'] = async () => {
    const count = 8;
    const file = await upload(lines(count));
    let batch = await client.batches.create({ input_file_id: file.id, endpoint, completion_window: '1h' });
    while (!['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
      await new Promise((resolve) => { setTimeout(resolve, 100); });
      batch = await client.batches.retrieve(batch.id);
    }
    assert.equal(batch.status, 'completed', JSON.stringify(batch));
    assert.deepEqual(batch.request_counts, { total: count, completed: count, failed: 0 });
    assert.ok(batch.usage.total_tokens > 0);
    const output = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((text) => JSON.parse(text));
    assert.deepEqual(output.map((answer) => answer.custom_id).sort(), Array.from({ length: count }, (_, i) => `line-${i}`).sort());
    for (const answer of output) {
      assert.equal(answer.response.status_code, 200);
      const { body } = JSON.parse(line('', `Hello ${answer.custom_id.slice('line-'.length)}`));
      const online = await client.chat.completions.create(body);
      assert.equal(answer.response.body.choices[0].message.content, online.choices[0].message.content);
    }
  };
}

runCases(tests);
