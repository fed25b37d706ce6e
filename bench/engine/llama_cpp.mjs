// The peer: llama.cpp's prebuilt binary inside npm's node-llama-cpp, one measurement as one line of JSON.
//   node llama_cpp.mjs NODE_MODULES MODEL.gguf THREADS PROMPT_TOKENS DECODE_TOKENS REPEATS
import path from "node:path";
import {pathToFileURL} from "node:url";

const [modules, gguf, threads, promptTokens, decodeTokens, repeats] = process.argv.slice(2).map((a, i) => i < 2 ? a : Number(a));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path.join(modules, "node-llama-cpp", "dist", "index.js")).href);
const llama = await getLlama({build: "never", gpu: false, maxThreads: threads, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: gguf, gpuLayers: 0});
const context = await model.createContext({contextSize: promptTokens + 64, batchSize: promptTokens, threads: {ideal: threads, min: threads}});
const sequence = context.getSequence();
const vocab = 32000;
const prompt = (count) => Array.from({length: count}, (_, i) => i === 0 ? 1 : 3 + (i * 7919) % (vocab - 3));
const now = () => Number(process.hrtime.bigint()) / 1e9;

let prefillSeconds = Infinity, decodeSeconds = Infinity, sampled = [];
for (let repeat = 0; repeat <= repeats; ++repeat) {  // the first warms up
    await sequence.clearHistory();
    let start = now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt(promptTokens));
    prefillSeconds = Math.min(prefillSeconds, now() - start);

    await sequence.clearHistory();
    sampled = [];
    for await (const token of sequence.evaluate(prompt(16), {temperature: 0, yieldEogToken: true})) {
        sampled.push(token);
        if (sampled.length === 1) start = now();
        if (sampled.length > decodeTokens) break;
    }
    decodeSeconds = Math.min(decodeSeconds, now() - start);
}
console.log(JSON.stringify({prefill_tokens_per_s: promptTokens / prefillSeconds,
    decode_tokens_per_s: (sampled.length - 1) / decodeSeconds, sampled, threads_used: context.currentThreads}));
process.exit(0);
