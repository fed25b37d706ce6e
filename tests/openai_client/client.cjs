// Uses a Skein cluster through OpenAI's own JavaScript client: what works against OpenAI has to work here.
//   node client.cjs BASE_URL MODEL      SKEIN_NPM: the folder with node_modules/openai
// Prints one line a test; exit status 1 when one failed. BASE_URL ends in /v1.
'use strict';
const assert = require('node:assert/strict');
const { createRequire } = require('node:module');
const path = require('node:path');
const runCases = require('./run_cases.cjs');

const load = createRequire(path.join(process.env.SKEIN_NPM, 'package.json'));
const OpenAI = load('openai').OpenAI;
const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ apiKey: 'none', baseURL, maxRetries: 0, timeout: 60_000 });
const messages = [{ role: 'system', content: 'You are brief.' }, { role: 'user', content: 'Hello' }];
const greedy = { model, temperature: 0, seed: 7 };

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const tests = {
  async 'models: list and retrieve'() {
    const page = await client.models.list();
    assert.ok(page.data.some((m) => m.id === model && m.object === 'model' && m.owned_by && m.created > 0));
    assert.equal((await client.models.retrieve(model)).id, model);
  },

  async 'response: whole, with instructions and usage'() {
    const response = await client.responses.create({ model, input: 'Hello', instructions: 'You are brief.', temperature: 0, max_output_tokens: 16 });
    assert.match(response.id, /^resp_/);
    assert.ok(['completed', 'incomplete'].includes(response.status));
    assert.equal(typeof response.output_text, 'string');
    assert.equal(response.output_text, response.output[0].content[0].text);
    assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);
    assert.equal(response.store, false);
  },

  async 'response: stream equals whole'() {
    const body = { model, input: [{ role: 'user', content: 'Hello' }], temperature: 0, max_output_tokens: 16 };
    const whole = await client.responses.create(body);
    const events = await collect(await client.responses.create({ ...body, stream: true }));
    events.forEach((event, i) => assert.equal(event.sequence_number, i));
    assert.equal(events[0].type, 'response.created');
    assert.match(events.at(-1).type, /^response\.(completed|incomplete)$/);
    const deltas = events.filter((e) => e.type === 'response.output_text.delta');
    assert.equal(deltas.map((e) => e.delta).join(''), whole.output_text);
    assert.equal(events.find((e) => e.type === 'response.output_text.done').text, whole.output_text);
  },

  async 'response: the streaming helper gathers it'() {
    let text = '';
    const stream = client.responses.stream({ model, input: 'Hello', temperature: 0, max_output_tokens: 8 });
    stream.on('response.output_text.delta', (event) => { text += event.delta; });
    const final = await stream.finalResponse();
    assert.equal(final.output[0].content[0].text, text);  // the helper adds no output_text to what it gathers
    assert.ok(text.length > 0);
  },

  async 'response: what needs a store is refused by name'() {
    const refused = await client.responses.create({ model, input: 'x', previous_response_id: 'resp_1' }).catch((e) => e);
    assert.ok(refused instanceof OpenAI.BadRequestError);
    assert.equal(refused.param, 'previous_response_id');
  },

  async 'completion: whole'() {
    const answer = await client.completions.create({ ...greedy, prompt: 'Once upon', max_tokens: 12 });
    assert.equal(answer.object, 'text_completion');
    assert.match(answer.id, /^cmpl-/);
    const [choice] = answer.choices;
    assert.equal(typeof choice.text, 'string');
    assert.ok(['stop', 'length'].includes(choice.finish_reason));
    assert.ok(answer.usage.prompt_tokens > 0 && answer.usage.completion_tokens <= 12);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  },

  async 'completion: stream equals whole, usage last'() {
    const body = { ...greedy, prompt: 'Once upon', max_tokens: 16 };
    const whole = await client.completions.create(body);
    const chunks = await collect(await client.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.deepEqual(last.usage, whole.usage);
    assert.equal(chunks.map((c) => c.choices[0].text).join(''), whole.choices[0].text);
    assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
    assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
  },

  async 'completion: several prompts, n, token prompts'() {
    const answer = await client.completions.create({ model, prompt: ['One', 'Two'], n: 2, max_tokens: 4, seed: 1 });
    assert.deepEqual(answer.choices.map((c) => c.index).sort(), [0, 1, 2, 3]);
    const tokens = await client.completions.create({ ...greedy, prompt: [[5, 6, 7], [8]], max_tokens: 2 });
    assert.equal(tokens.choices.length, 2);
    assert.equal(tokens.usage.prompt_tokens, 4);
  },

  async 'completion: logprobs and echo'() {
    const answer = await client.completions.create({ ...greedy, prompt: 'Once upon a time', max_tokens: 4, logprobs: 2, echo: true });
    const { text, logprobs } = answer.choices[0];
    assert.ok(text.startsWith('Once upon a time'));
    const count = logprobs.tokens.length;
    for (const list of ['token_logprobs', 'top_logprobs', 'text_offset']) assert.equal(logprobs[list].length, count);
    assert.equal(logprobs.token_logprobs[0], null);
    assert.ok(logprobs.token_logprobs.slice(1).every((l) => l <= 0));
    assert.equal(count, answer.usage.prompt_tokens + Math.min(4, answer.usage.completion_tokens));
  },

  async 'completion: stop string'() {
    const body = { ...greedy, prompt: 'Once upon', max_tokens: 24 };
    const { text } = (await client.completions.create(body)).choices[0];
    const at = Math.floor(text.length / 2);
    const stop = text.slice(at, at + 3);
    const cut = (await client.completions.create({ ...body, stop: [stop] })).choices[0];
    assert.equal(cut.text, text.slice(0, text.indexOf(stop)));
    assert.equal(cut.finish_reason, 'stop');
  },

  async 'chat: whole'() {
    const answer = await client.chat.completions.create({ ...greedy, messages, max_completion_tokens: 16 });
    assert.equal(answer.object, 'chat.completion');
    assert.match(answer.id, /^chatcmpl-/);
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.equal(typeof answer.choices[0].message.content, 'string');
    assert.ok(answer.usage.completion_tokens <= 16);
  },

  async 'chat: stream equals whole'() {
    const body = { ...greedy, messages, max_tokens: 16 };
    const whole = await client.chat.completions.create(body);
    const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    const text = chunks.map((c) => c.choices[0].delta.content ?? '').join('');
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
  },

  async 'chat: the client\'s own stream helper'() {
    const stream = client.chat.completions.stream({ ...greedy, messages, max_tokens: 8 });
    let text = '';
    stream.on('content', (delta) => { text += delta; });
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content ?? '', text);
  },

  async 'chat: logprobs'() {
    const answer = await client.chat.completions.create({ ...greedy, messages, max_tokens: 4, logprobs: true, top_logprobs: 3 });
    const content = answer.choices[0].logprobs.content;
    assert.ok(content.length > 0);
    for (const entry of content) {
      assert.ok(entry.logprob <= 0 && Array.isArray(entry.bytes) && entry.top_logprobs.length === 3);
      assert.ok(entry.top_logprobs[0].logprob >= entry.top_logprobs[2].logprob);
    }
  },

  async 'chat: n choices, text parts, seed repeats'() {
    const parts = [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }];
    const body = { model, messages: parts, max_tokens: 6, temperature: 1, seed: 42 };
    const [one, two] = [await client.chat.completions.create({ ...body, n: 3 }), await client.chat.completions.create({ ...body, n: 3 })];
    assert.deepEqual(one.choices.map((c) => c.index), [0, 1, 2]);
    assert.deepEqual(one.choices.map((c) => c.message.content), two.choices.map((c) => c.message.content));
  },

  async 'completion: equal prompts without a seed differ'() {
    const answer = await client.completions.create({ model, prompt: Array(4).fill('Once upon a time'), max_tokens: 24, temperature: 1.3 });
    assert.ok(new Set(answer.choices.map((c) => c.text)).size > 1);
  },

  async 'completion: best_of returns one of the choices of n, and counts all'() {
    const body = { model, prompt: 'Once upon a time', max_tokens: 8, temperature: 1, seed: 3, ignore_eos: true };
    const all = await client.completions.create({ ...body, n: 4, logprobs: 0 });
    const best = await client.completions.create({ ...body, n: 1, best_of: 4 });
    const mean = (c) => c.logprobs.token_logprobs.reduce((a, b) => a + b, 0) / c.logprobs.token_logprobs.length;
    const expected = all.choices.reduce((a, b) => (mean(b) > mean(a) ? b : a));
    assert.equal(best.choices.length, 1);
    assert.equal(best.choices[0].text, expected.text);
    assert.equal(best.usage.completion_tokens, 32);
  },

  async 'chat: usage in every event, details, no logprobs with the end'() {
    const body = { ...greedy, messages, max_tokens: 8, logprobs: true, stream: true };
    const chunks = await collect(await client.chat.completions.create({ ...body, stream_options: { include_usage: true, continuous_usage_stats: true } }));
    const counts = chunks.map((c) => c.usage.completion_tokens);
    assert.deepEqual(counts, [...counts].sort((a, b) => a - b));
    assert.deepEqual(chunks.at(-1).usage.prompt_tokens_details, { cached_tokens: 0 });
    assert.deepEqual(chunks.at(-1).usage.completion_tokens_details, { reasoning_tokens: 0 });
    const end = chunks.find((c) => c.choices[0]?.finish_reason);
    assert.ok(end.choices[0].logprobs === null || end.choices[0].logprobs.content.length > 0);
  },

  async 'chat: results of tools are part of a conversation; tools are refused'() {
    const call = { id: '1', type: 'function', function: { name: 'f', arguments: '{}' } };
    const history = [...messages, { role: 'assistant', content: null, tool_calls: [call] }, { role: 'tool', tool_call_id: '1', content: 'r' }];
    assert.ok((await client.chat.completions.create({ ...greedy, messages: history, max_tokens: 4 })).choices.length);
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }];
    for (const stream of [false, true]) {
      const error = await client.chat.completions.create({ ...greedy, messages, tools, stream }).then(() => null, (e) => e);
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.equal(error.param, 'tools');
      assert.equal(error.code, 'unsupported_parameter');
    }
    assert.ok(await client.chat.completions.create({ ...greedy, messages, tools, tool_choice: 'none', max_tokens: 4 }));
  },

  async 'unknown parameters are named in a header'() {
    const { response } = await client.chat.completions.create({ ...greedy, messages, max_tokens: 2, max_token: 3 }).withResponse();
    assert.equal(response.headers.get('x-skein-warning'), "unknown parameter 'max_token' (did you mean 'max_tokens'?)");
    const known = await client.chat.completions.create({ ...greedy, messages, max_tokens: 2, store: true, metadata: { a: 'b' }, service_tier: 'auto', safety_identifier: 'u' }).withResponse();
    assert.equal(known.response.headers.get('x-skein-warning'), null);
  },

  async 'chat: streamed choices of n equal the whole ones'() {
    const body = { model, messages, max_tokens: 8, temperature: 1, seed: 11, n: 3 };
    const whole = await client.chat.completions.create(body);
    const texts = ['', '', ''];
    for (const chunk of await collect(await client.chat.completions.create({ ...body, stream: true }))) {
      for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? '';
    }
    assert.deepEqual(texts, whole.choices.map((c) => c.message.content));
  },

  async 'abort ends the stream'() {
    const stream = await client.completions.create({ ...greedy, prompt: 'Once', max_tokens: 64, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      break;  // the client aborts the request
    }
    assert.ok((await client.models.list()).data.length > 0);
  },

  async 'errors are typed and name the parameter'() {
    const fails = async (promise, type, expected) => {
      const error = await promise.then(() => null, (e) => e);
      assert.ok(error instanceof type, String(error));
      for (const [key, value] of Object.entries(expected)) assert.equal(error[key], value, `${key} of ${error}`);
    };
    await fails(client.chat.completions.create({ model: 'none-such', messages }), OpenAI.NotFoundError, { status: 404, code: 'model_not_found', param: 'model' });
    await fails(client.models.retrieve('none-such'), OpenAI.NotFoundError, { status: 404 });
    await fails(client.chat.completions.create({ model, messages, temperature: 3 }), OpenAI.BadRequestError, { status: 400, param: 'temperature', type: 'invalid_request_error' });
    await fails(client.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError, { param: 'messages' });
    await fails(client.completions.create({ model, prompt: 'a', suffix: 'b' }), OpenAI.BadRequestError, { param: 'suffix' });
    await fails(client.completions.create({ model, prompt: 'a', max_tokens: 10 ** 8 }), OpenAI.BadRequestError, { code: 'context_length_exceeded' });
    await fails(client.chat.completions.create({ model, messages, stream: true, top_logprobs: 2 }), OpenAI.BadRequestError, { param: 'top_logprobs' });
  },

  async '32 streams at a time'() {
    const body = { ...greedy, prompt: 'Once upon', max_tokens: 12 };
    const expected = (await client.completions.create(body)).choices[0].text;
    const texts = await Promise.all(Array.from({ length: 32 }, async () =>
      (await collect(await client.completions.create({ ...body, stream: true }))).map((c) => c.choices[0].text).join('')));
    assert.equal(texts.length, 32);
    // What a sequence draws does not depend on the batch it runs in (engine/ops/ops.h).
    for (const text of texts) assert.equal(text, expected);
  },
};

runCases(tests);
