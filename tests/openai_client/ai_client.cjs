// Uses a Skein cluster through npm's `ai` with its provider for OpenAI-compatible servers, and holds /openapi.json to the
// OpenAPI specification.
//   node ai_client.cjs BASE_URL MODEL      SKEIN_NPM: the folder with node_modules
// Prints one line a test; exit status 1 when one failed. BASE_URL ends in /v1.
'use strict';
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const runCases = require('./run_cases.cjs');

const load = createRequire(path.join(process.env.SKEIN_NPM, 'package.json'));
const { generateText, streamText, jsonSchema, tool, APICallError } = load('ai');
const { createOpenAICompatible } = load('@ai-sdk/openai-compatible');
const [baseURL, name] = process.argv.slice(2);
const skein = createOpenAICompatible({ name: 'skein', baseURL, apiKey: 'none', includeUsage: true });
const chat = { model: skein(name), prompt: 'Hello', temperature: 0, seed: 7, maxRetries: 0 };

async function failure(promise) {
  const error = await promise.then(() => null, (e) => e);
  assert.ok(APICallError.isInstance(error), String(error));
  return { status: error.statusCode, ...JSON.parse(error.responseBody).error };
}

const tests = {
  async 'chat: whole'() {
    const answer = await generateText({ ...chat, maxOutputTokens: 12 });
    assert.ok(answer.text.length > 0);
    assert.ok(['stop', 'length'].includes(answer.finishReason));
    assert.ok(answer.usage.inputTokens > 0 && answer.usage.outputTokens <= 12);
    assert.equal(answer.usage.totalTokens, answer.usage.inputTokens + answer.usage.outputTokens);
    assert.deepEqual(answer.warnings, []);
  },

  async 'chat: stream equals whole, with usage'() {
    const whole = await generateText({ ...chat, maxOutputTokens: 12 });
    const stream = streamText({ ...chat, maxOutputTokens: 12 });
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal(await stream.finishReason, whole.finishReason);
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  },

  async 'chat: system, history and stop'() {
    const { text } = await generateText({ ...chat, prompt: undefined, system: 'You are brief.', maxOutputTokens: 16,
      messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: 'Hi.' }, { role: 'user', content: 'Who are you?' }] });
    assert.ok(text.length > 2);
    const stop = text.slice(1, 3);
    const cut = await generateText({ ...chat, prompt: undefined, system: 'You are brief.', maxOutputTokens: 16, stopSequences: [stop],
      messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: 'Hi.' }, { role: 'user', content: 'Who are you?' }] });
    assert.equal(cut.text, text.slice(0, text.indexOf(stop)));
    assert.equal(cut.finishReason, 'stop');
  },

  async 'completion model'() {
    const answer = await generateText({ ...chat, model: skein.completionModel(name), prompt: 'Once upon', maxOutputTokens: 8 });
    assert.ok(answer.text.length > 0 && answer.usage.outputTokens <= 8);
  },

  async 'errors have status, parameter and code'() {
    let error = await failure(generateText({ ...chat, model: skein('none-such') }));
    assert.deepEqual([error.status, error.param, error.code], [404, 'model', 'model_not_found']);
    error = await failure(generateText({ ...chat, temperature: 3 }));
    assert.deepEqual([error.status, error.param], [400, 'temperature']);
    const tools = { f: tool({ description: 'd', inputSchema: jsonSchema({ type: 'object', properties: {} }) }) };
    error = await failure(generateText({ ...chat, tools }));
    assert.deepEqual([error.status, error.param, error.code], [400, 'tools', 'unsupported_parameter']);
    error = await failure(streamError({ ...chat, tools }).then((e) => { throw e; }));
    assert.deepEqual([error.status, error.param], [400, 'tools']);
  },

  async 'abort ends the stream'() {
    const controller = new AbortController();
    const stream = streamText({ ...chat, maxOutputTokens: 256, abortSignal: controller.signal, onError() {} });
    let pieces = 0;
    try {
      for await (const piece of stream.textStream) {
        if (piece && ++pieces === 2) controller.abort();
      }
    } catch (error) {
      assert.equal(error.name, 'AbortError');
    }
    assert.ok(pieces >= 1);
    assert.ok((await generateText({ ...chat, maxOutputTokens: 2 })).text !== undefined);
  },

  async '/openapi.json is valid OpenAPI 3.1'() {
    const { Validator } = await import(pathToFileURL(load.resolve('@seriousme/openapi-schema-validator')));
    const validator = new Validator();
    const document = await (await fetch(baseURL.replace(/\/v1$/, '/openapi.json'))).json();
    const result = await validator.validate(document);
    assert.ok(result.valid, JSON.stringify(result.errors, null, 1));
    assert.equal(validator.version, '3.1');
  },
};

// The error that a stream has in it.
async function streamError(options) {
  let found = null;
  const stream = streamText({ ...options, onError({ error }) { found = error; } });
  await stream.consumeStream();
  return found;
}

runCases(tests);
