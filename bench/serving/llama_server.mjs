// The peer: an HTTP server on llama.cpp, by npm's node-llama-cpp, which carries the library but not llama.cpp's own server.
// It answers streamed /v1/completions whose prompt is token ids, greedily, to max_tokens. One sequence of the context for each
// answer; in each cycle the library runs what all sequences want next as one batch (continuous batching). More
// requests than sequences wait in order of arrival. GET /stats tells the steps and tokens so far.
//   node llama_server.mjs NODE_MODULES MODEL.gguf THREADS SEQUENCES TOKENS_PER_SEQUENCE PORT_FILE
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [modules, gguf, threads, sequences, positions, portFile] = process.argv.slice(2).map((a, i) => [2, 3, 4].includes(i) ? Number(a) : a);
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path.join(modules, "node-llama-cpp", "dist", "index.js")).href);
const llama = await getLlama({build: "never", gpu: false, maxThreads: threads, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: gguf, gpuLayers: 0});

// What a batch takes of each sequence: tokens to decode first, then prompts in order of arrival, as llama.cpp's server does.
const stats = {steps: 0, sequences: 0, tokens: 0, threads};
function batchOf({items, size}) {
    let left = size;
    const decoding = (item) => item.tokens.length === 1;
    const taken = [...items.filter(decoding), ...items.filter((item) => !decoding(item))].map((item) => {
        const processAmount = Math.min(item.tokens.length, left);
        left -= processAmount;
        return {item, processAmount};
    }).filter((one) => one.processAmount > 0);
    ++stats.steps;
    stats.sequences += taken.length;
    stats.tokens += size - left;
    return taken;
}
const context = await model.createContext({
    sequences, contextSize: positions, batchSize: 512, threads: {ideal: threads, min: threads},
    batching: {itemPrioritizationStrategy: batchOf}});
stats.threads = context.currentThreads;

const free = Array.from({length: sequences}, () => context.getSequence());
const waiting = [];
const take = () => free.length > 0 ? Promise.resolve(free.pop()) : new Promise((accept) => waiting.push(accept));
const give = (sequence) => waiting.length > 0 ? waiting.shift()(sequence) : free.push(sequence);

const chunk = (tokens, reason) =>
    `data: ${JSON.stringify({choices: [{index: 0, text: model.detokenize(tokens), finish_reason: reason}]})}\n\n`;

async function generate({prompt, max_tokens: count}, sequence, response) {
    await sequence.clearHistory();
    let made = 0;
    for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
        response.write(chunk([token], ++made === count ? "length" : null));
        if (made === count || response.destroyed) break;
    }
    response.write("data: [DONE]\n\n");
}

async function answer(request, response) {
    let sequence;
    try {
        let body = "";
        for await (const part of request) body += part;  // throws when the client is gone
        sequence = await take();
        response.writeHead(200, {"Content-Type": "text/event-stream"});
        response.socket.setNoDelay(true);
        await generate(JSON.parse(body), sequence, response);
        response.end();
    } catch (error) {
        response.destroy(error);
    } finally {
        if (sequence !== undefined) give(sequence);
    }
}

const server = http.createServer((request, response) => {
    if (request.method === "POST") return answer(request, response);
    response.end(JSON.stringify(stats));
});
server.keepAliveTimeout = 0;  // else node closes a connection that had no request for some seconds
server.listen(0, "127.0.0.1", () => {
    fs.writeFileSync(portFile + ".part", String(server.address().port));
    fs.renameSync(portFile + ".part", portFile);
});
process.on("SIGTERM", () => process.exit(0));
