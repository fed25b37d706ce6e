#!/usr/bin/env python3
"""The same shapes in PyTorch: a plain decoder with a static KV cache, scaled-dot-product attention, and CUDA graphs.

  torch_peer.py --config CONFIG.JSON [--batches 1,8,64,256] [--prompts 1024,8192,32768] [--context 1024]

Prints one line of JSON for each measurement, as model_bench does: the fastest of the ways it was tried, which "how" names.
Weights are random bf16. A decode step is a CUDA graph, greedy choice included: with a mask over a static cache, over as many
keys as there are on average (which needs no mask), and that compiled. Prefill runs whole prompts with causal attention, as
it is and compiled. --device cpu --eager runs the same code on the CPU, without graphs: a check of the peer itself.
"""
import argparse
import json
import statistics
import sys
import time


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def arguments():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=numbers, default=[1, 8, 64, 256])
    parser.add_argument("--prompts", type=numbers, default=[1024, 8192, 32768])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--eager", action="store_true", help="no graphs, no compile")
    return parser.parse_args()


OPTIONS = arguments()  # before torch is needed, so that --help answers without it

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402


class Shape:
    def __init__(self, config):
        self.hidden = config["hidden_size"]
        self.inner = config["intermediate_size"]
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.head_dim = config.get("head_dim", self.hidden // self.heads)
        self.vocab = config["vocab_size"]
        self.eps = config["rms_norm_eps"]
        self.theta = config["rope_theta"]
        self.tied = config.get("tie_word_embeddings", False)
        self.qk_norm = config["architectures"][0].startswith("Qwen3")


def rms_norm(x, weight, eps):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class Layer:
    def __init__(self, s, make):
        self.s = s
        self.qkv = make((s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden)
        self.out = make(s.hidden, s.heads * s.head_dim)
        self.gate_up = make(2 * s.inner, s.hidden)
        self.down = make(s.hidden, s.inner)
        self.norms = [make(s.hidden), make(s.hidden)]
        self.qk_norms = [make(s.head_dim), make(s.head_dim)] if s.qk_norm else None

    def project(self, x, cos, sin):
        """[batch, tokens, hidden] to q, k, v [batch, heads, tokens, head_dim]."""
        s = self.s
        batch, tokens, _ = x.shape
        qkv = F.linear(rms_norm(x, self.norms[0], s.eps), self.qkv)
        qkv = qkv.view(batch, tokens, -1, s.head_dim).transpose(1, 2)
        q, k, v = qkv.split((s.heads, s.kv_heads, s.kv_heads), 1)
        if self.qk_norms:
            q, k = rms_norm(q, self.qk_norms[0], s.eps), rms_norm(k, self.qk_norms[1], s.eps)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def finish(self, x, attention):
        batch, tokens, _ = x.shape
        x = x + F.linear(attention.transpose(1, 2).reshape(batch, tokens, -1), self.out)
        gate, up = F.linear(rms_norm(x, self.norms[1], self.s.eps), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Model:
    def __init__(self, shape, device, positions):
        self.s = shape
        generator = torch.Generator(device=device).manual_seed(1)

        def make(*sizes):
            if len(sizes) == 1:
                return torch.ones(sizes, dtype=torch.bfloat16, device=device)
            weights = torch.empty(sizes, dtype=torch.bfloat16, device=device)
            return weights.normal_(0, sizes[1] ** -0.5, generator=generator)

        self.embedding = make(shape.vocab, shape.hidden)
        self.head = self.embedding if shape.tied else make(shape.vocab, shape.hidden)
        self.layers = [Layer(shape, make) for _ in range(shape.layers)]
        self.norm = make(shape.hidden)
        frequencies = shape.theta ** (-torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim)
        angles = torch.arange(positions, device=device).float()[:, None] * frequencies
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def next_tokens(self, x):
        return F.linear(rms_norm(x[:, -1], self.norm, self.s.eps), self.head).argmax(-1, keepdim=True)

    def prefill(self, ids):
        """First tokens after whole prompts; keys and values are made and left."""
        tokens = ids.shape[1]
        cos, sin = self.cos[:tokens], self.sin[:tokens]
        x = F.embedding(ids, self.embedding)
        kept = []
        for layer in self.layers:
            q, k, v = layer.project(x, cos, sin)
            kept.append((k, v))
            x = layer.finish(x, attend(q, k, v, self.s, is_causal=True))
        return self.next_tokens(x), kept

    def decode(self, ids, position, mask, seen, cache):
        """One token of each sequence at `position` [1], over the first `seen` keys, or what mask [1, 1, 1, room] says."""
        cos, sin = self.cos[position], self.sin[position]
        x = F.embedding(ids, self.embedding)
        for layer, (keys, values) in zip(self.layers, cache):
            q, k, v = layer.project(x, cos, sin)
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            if mask is None:
                attention = attend(q, keys[:, :, :seen], values[:, :, :seen], self.s)
            else:
                attention = attend(q, keys, values, self.s, attn_mask=mask)
            x = layer.finish(x, attention)
        return self.next_tokens(x)


def attend(q, k, v, shape, **options):
    grouped = shape.heads != shape.kv_heads
    try:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped, **options)
    except TypeError:  # before PyTorch 2.5
        group = shape.heads // shape.kv_heads
        return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), **options)


class Decoder:
    """Steps of a batch behind `context` random keys, each a replay of one graph."""

    def __init__(self, model, batch, context, room, how, device, eager):
        s = model.s
        self.decode = torch.compile(model.decode) if how == "graph, compiled" else model.decode
        self.seen = (context + room) // 2
        self.ids = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.position = torch.tensor([context], device=device)
        self.mask = (torch.arange(room, device=device) <= context).view(1, 1, 1, room) if "mask" in how else None
        self.cache = [tuple(torch.randn(batch, s.kv_heads, room, s.head_dim, dtype=torch.bfloat16, device=device)
                            for _ in range(2)) for _ in model.layers]
        self.graph = None
        if eager:
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def step(self):
        self.ids.copy_(self.decode(self.ids, self.position, self.mask, self.seen, self.cache))
        if self.mask is not None:
            self.mask.index_fill_(3, self.position + 1, True)
        self.position.add_(1)

    def run(self):
        """Seconds until the step's tokens are on the host."""
        begin = time.perf_counter()
        self.graph.replay() if self.graph else self.step()
        self.ids.cpu()
        return time.perf_counter() - begin


def fastest(ways, seconds_of):
    """The least of the median seconds of `ways`, and which; a way that fails is left out."""
    best = {}
    for how in ways:
        try:
            best[how] = statistics.median(seconds_of(how))
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            print("torch_peer: without %s: %s" % (how, str(error).splitlines()[0]), file=sys.stderr, flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if not best:
        raise RuntimeError("no way to measure it worked")
    how = min(best, key=best.get)
    return best[how], how


def measure_decode(model, batch, options):
    def seconds_of(how):
        room = options.context + options.steps * (options.rounds + 1) + 8
        decoder = Decoder(model, batch, options.context, room, how, options.device, options.eager)
        turns = [sum(decoder.run() for _ in range(options.steps)) / options.steps for _ in range(options.rounds + 1)]
        return turns[1:]

    ways = ["mask", "window"] if options.eager else ["graph, mask", "graph", "graph, compiled"]
    step, how = fastest(ways, seconds_of)
    print(json.dumps({"measure": "decode", "batch": batch, "context": options.context, "step_s": step, "how": how,
                      "tokens_per_s": batch / step}), flush=True)


def measure_prefill(model, tokens, options):
    ids = torch.randint(0, model.s.vocab, (1, tokens), device=options.device)

    def seconds_of(how):
        prefill = torch.compile(model.prefill) if how == "compiled" else model.prefill
        seconds = []
        for turn in range(options.rounds + 2):
            begin = time.perf_counter()
            token, kept = prefill(ids)
            token.cpu()
            del kept
            if turn > 1:
                seconds.append(time.perf_counter() - begin)
        return seconds

    best, how = fastest(["plain"] if options.eager else ["plain", "compiled"], seconds_of)
    print(json.dumps({"measure": "prefill", "tokens": tokens, "seconds": best, "how": how,
                      "tokens_per_s": tokens / best}), flush=True)


def main():
    options = OPTIONS
    with open(options.config) as file:
        shape = Shape(json.load(file))
    positions = max([options.context + options.steps * (options.rounds + 1) + 8] + options.prompts)
    with torch.no_grad():
        model = Model(shape, options.device, positions)
        for batch in options.batches:
            measure_decode(model, batch, options)
        for tokens in options.prompts:
            measure_prefill(model, tokens, options)


if __name__ == "__main__":
    main()
