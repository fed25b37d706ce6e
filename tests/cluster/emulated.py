"""Emulated workers for tests and benches: their flags, a model folder for their router, and their expected answers.

An emulated worker needs no weights. The router does need a tokenizer and the model's limits: emulated_model() makes a
folder of any model's tokenizer with limits of our choosing. Clients send prompts as token ids (the completions API takes
arrays of ids) and ask for `ignore_eos`, `return_token_ids` and temperature 0.
"""
import json
import os

MASK = (1 << 64) - 1
CHAIN_START = 0x9E3779B97F4A7C15
VOCAB = 2048


def emulated_model(folder, tokenizer, max_positions=262144, vocab=VOCAB):
    """A model folder `folder`/emulated with the tokenizer of the model in `tokenizer`."""
    path = os.path.join(folder, "emulated")
    os.makedirs(path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        os.symlink(os.path.realpath(os.path.join(tokenizer, name)), os.path.join(path, name))
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"vocab_size": vocab, "max_position_embeddings": max_positions}, f)
    return path


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def continuation(prompt, count, vocab=VOCAB, layers=1, heads=1, words=1):
    """The greedy output of workers of this shape for `prompt`: an independent implementation of engine/emulated/tags.h.

    words = head_dim * 2 bytes / 8.
    """
    places = [(head, ((layer * 2 + part) * 4096 + head) * 4096 + word) for layer in range(layers) for part in range(2)
              for head in range(heads) for word in range(words)]
    salts = [place * CHAIN_START & MASK for _, place in places]
    link, digest, chains, output = CHAIN_START, 0, [0] * heads, []
    for position in range(len(prompt) + count):
        if position >= len(prompt):
            output.append(digest % vocab)
        token = prompt[position] if position < len(prompt) else output[-1]
        link = mix(link ^ mix(position * 0x10001 + token + 1 & MASK))
        for (head, place), salt in zip(places, salts):
            word = link if place == 0 else mix(link + salt & MASK)
            chains[head] = mix(chains[head] + CHAIN_START & MASK) ^ word
        digest = 0
        for chain in chains:
            digest = mix(digest + CHAIN_START & MASK) ^ chain
    return output


def fast_profile(folder, speed):
    """LLaMA3-8B's profile on A100, scaled to be faster by a factor."""
    path = os.path.join(folder, "fast.json")
    coefficients = {1: (0.10, 9.0e-5, 1.6e-9, 1.2e-9)}
    for sp in (2, 4, 8, 16):
        a, *rest = coefficients[sp // 2]
        coefficients[sp] = (a * 1.2, *(c / 1.9 for c in rest))
    rows = ", ".join('"%d": {"a_s": %g, "b_s_per_token": %g, "c_s_per_token2": %g, "d_s_per_token2": %g}' %
                     (sp, *(c / speed for c in values)) for sp, values in coefficients.items())
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"sp": {%s}}' % rows)
    return path


def complete(cluster, prompt, count, timeout=120, name=None, **more):
    """The answer's token ids. `name`: its id for skeinctl explain. `more`: further parameters."""
    answer = cluster.post("/v1/completions", {
        "model": cluster.name, "prompt": prompt, "max_tokens": count, "ignore_eos": True, "temperature": 0,
        "return_token_ids": True, **more},
                          timeout=timeout, headers={"X-Request-Id": name} if name else None)
    assert answer["usage"]["completion_tokens"] == count, answer["usage"]
    return answer["choices"][0]["token_ids"]
