"""What tests of decode-workers with a real model that share their weights have in common.

    with up(decode=2) as cluster:
        group = await_group(cluster, 2)
        cluster.skeinctl("share", "--group", group["name"])
"""
import json
import os
import shutil
import struct

from clients import Clients
from cluster import Cluster, binaries_from_argv

MODEL = "deploy/models/fledgling"
WORDS = "once upon a time there was little bird that lived in the tall tree and sang every day to its friend fox by river".split()
MIB = 1 << 20
WIDE = {"hidden_size": 256, "intermediate_size": 5120, "num_hidden_layers": 8, "vocab_size": 2048}
KV_BLOCK = 2 * 4 * 32 * 16 * 2 * WIDE["num_hidden_layers"]  # bytes of a block of its KV, in all layers
LAYER = 3 * WIDE["hidden_size"] * WIDE["intermediate_size"] * 2  # bytes of its feed-forward weights


def up(model=MODEL, decode=2, gib=0.125, **more):
    return Cluster(binaries_from_argv(), model, prefill=1, decode=decode, worker_flags=["--node=a", "--reproducible=on"],
                   decode_flags=["--device-memory-gib=%g" % gib], **more)


def group_of(cluster):
    group, = [group for group in json.loads(cluster.skeinctl("formation", "--format=json"))["groups"] if group["role"] == "decode"]
    return group


def await_group(cluster, size):
    def ready():
        group = group_of(cluster)
        return len(group["instances"]) == size and group["ready"] == size
    cluster.until(ready, "the group has its communicators")
    return group_of(cluster)


def shown(cluster):
    return [(one["name"], one["instances"]) for one in group_of(cluster)["formations"] if one["stage"] == "stands"]


def members(cluster):
    """The process of each decode instance, by id."""
    by_pid = {process.popen.pid: name for name, process in cluster.processes.items()}
    return {one["instance"]: by_pid[one["pid"]] for one in cluster.status()["instances"] if one["role"] == "decode"}


def asked(count):
    """Greedy and sampled ones."""
    return [{"prompt": " ".join(WORDS[(7 * number + 3 * i) % len(WORDS)] for i in range(8 + 5 * number)), "max_tokens": 60, "seed": number,
             "temperature": number % 2, "ignore_eos": True, "return_token_ids": True, "logprobs": 1} for number in range(count)]


def answer_of(cluster, body):
    choice, = cluster.post("/v1/completions", {"model": cluster.name, **body}, timeout=120)["choices"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


class Load(Clients):
    """Each asks the same again and again. Every answer has to be the one that an instance gives alone."""

    def __init__(self, cluster, bodies, expected):
        super().__init__(cluster, len(bodies))
        self.bodies, self.expected = bodies, expected

    def __exit__(self, *raised):
        super().__exit__(*raised)
        assert not self.failures, self.failures

    def turn(self, number):
        answer, expected = answer_of(self.cluster, self.bodies[number]), self.expected[number]
        assert answer == expected, "wrong answer to %s: %s, not %s" % (self.bodies[number]["prompt"], answer, expected)


def wide_model(folder):
    """A model of random weights with large feed-forward parts, and fledgling's tokenizer."""
    shutil.copytree(MODEL, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = {**json.load(f), **WIDE}
    os.chmod(os.path.join(folder, "config.json"), 0o644)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    hidden, inner = WIDE["hidden_size"], WIDE["intermediate_size"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    queries = config["num_attention_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": [WIDE["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for layer in range(WIDE["num_hidden_layers"]):
        of = "model.layers.%d." % layer
        shapes.update({of + "input_layernorm.weight": [hidden], of + "post_attention_layernorm.weight": [hidden],
                       of + "self_attn.q_proj.weight": [queries, hidden], of + "self_attn.k_proj.weight": [keys, hidden],
                       of + "self_attn.v_proj.weight": [keys, hidden], of + "self_attn.o_proj.weight": [hidden, queries],
                       of + "mlp.gate_proj.weight": [inner, hidden], of + "mlp.up_proj.weight": [inner, hidden],
                       of + "mlp.down_proj.weight": [hidden, inner]})
    signs = bytes(0x3c if byte % 2 else 0xbc for byte in range(256))  # of bf16: 2^-7 to 2^-5 in size
    header, data, at = {}, [], 0
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        values = bytearray(2 * count)
        values[0::2], values[1::2] = os.urandom(count), os.urandom(count).translate(signs)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(values)]}
        data.append(values)
        at += len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(folder, "model.safetensors")
    os.chmod(path, 0o644)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data)
    return folder


def memory(cluster, names):
    """Private and proportional bytes of each of the processes."""
    found = []
    for name in names:
        sums = {}
        with open("/proc/%d/smaps_rollup" % cluster.processes[name].popen.pid, encoding="utf-8") as f:
            for line in f.read().splitlines()[1:]:
                sums[line.split(":")[0]] = int(line.split()[1]) * 1024
        found.append({"private": sums["Private_Clean"] + sums["Private_Dirty"], "pss": sums["Pss"]})
    return found


def kv_blocks(cluster, names, state="total"):
    return [cluster.metric(cluster.processes[name], "skein_kv_blocks", 'state="%s"' % state) for name in names]


def told_blocks(cluster):
    return sorted(one["blocks"]["total"] for one in cluster.status()["instances"] if one["role"] == "decode")
