#!/usr/bin/env python3
"""Decode-workers with a real model share their weights: answers are those that the instances gave alone, in either mode, across changes of
the mode, when one enters or leaves, and when a member is killed; what they share is in memory once, and what that frees is KV blocks
meanwhile."""
import concurrent.futures
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from batches import Job  # noqa: E402
from cluster import Cluster, binaries_from_argv, run_tests  # noqa: E402

MODEL = "deploy/models/fledgling"
WORDS = "once upon a time there was little bird that lived in the tall tree and sang every day to its friend fox by river".split()
MIB = 1 << 20
WIDE = {"hidden_size": 256, "intermediate_size": 5120, "num_hidden_layers": 8, "vocab_size": 2048}
KV_BLOCK = 2 * 4 * 32 * 16 * 2 * WIDE["num_hidden_layers"]  # bytes of a block of its KV, in all layers
LAYER = 3 * WIDE["hidden_size"] * WIDE["intermediate_size"] * 2  # bytes of its feed-forward weights


def up(model=MODEL, decode=2, gib=0.125, **more):
    return Cluster(binaries_from_argv(), model, prefill=1, decode=decode, worker_flags=["--node=a", "--reproducible=on"],
                   decode_flags=["--device-memory-gib=%g" % gib], **more)


def skeinctl(cluster, *arguments):
    done = subprocess.run([cluster.binaries["skeinctl"], *arguments, "--orchestrator", cluster.orchestrator], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)
    assert done.returncode == 0, done
    return done.stdout


def group_of(cluster):
    group, = [group for group in json.loads(skeinctl(cluster, "formation", "--format=json"))["groups"] if group["role"] == "decode"]
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


class Load:
    """Clients that ask the same again and again until stopped. Every answer has to be the one that an instance gives alone."""

    def __init__(self, cluster, bodies, expected):
        self.cluster, self.stopped, self.answered, self.failures = cluster, False, 0, []
        self.pool = concurrent.futures.ThreadPoolExecutor(len(bodies))
        self.clients = [self.pool.submit(self.run, body, answer) for body, answer in zip(bodies, expected)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped = True
        self.pool.shutdown()
        for client in self.clients:
            client.result()

    def run(self, body, expected):
        while not self.stopped and not self.failures:
            try:
                answer = answer_of(self.cluster, body)
            except Exception as failure:  # pylint: disable=broad-except
                self.failures.append(repr(failure))
                raise
            if answer != expected:
                self.failures.append("wrong answer to %s: %s, not %s" % (body["prompt"], answer, expected))
            self.answered += 1

    def await_more(self, count, what):
        before = self.answered
        self.cluster.until(lambda: self.failures or self.answered >= before + count, what)
        assert not self.failures, self.failures


def answers_are_those_of_independent_instances():
    bodies = asked(6)
    for size in (2, 4):
        with up(decode=size) as cluster:
            group = await_group(cluster, size)
            name, ids = group["name"], group["instances"]
            expected = [answer_of(cluster, body) for body in bodies]
            with Load(cluster, bodies, expected) as load:
                for mode in ("was", "cas"):
                    skeinctl(cluster, "share", "--group", name, "--mode", mode)
                    assert shown(cluster) == [("shared(%s)" % mode, ids)], group_of(cluster)
                    load.await_more(12, "instances that share their weights answer in " + mode)
                for mode in ("was", "cas", "was"):
                    skeinctl(cluster, "share", "--group", name, "--mode", mode)
                    load.await_more(6, "they answer after a change to " + mode)
                skeinctl(cluster, "release", "--group", name)
                assert [one for one, _ in shown(cluster)] == ["independent"], group_of(cluster)
                load.await_more(12, "instances with all their weights answer")
            cluster.assert_idle_and_whole()


def a_member_that_is_killed_takes_no_answer_with_it():
    bodies = asked(8)
    with up(decode=4) as cluster:
        group = await_group(cluster, 4)
        expected = [answer_of(cluster, body) for body in bodies]
        names = members(cluster)
        with Load(cluster, bodies, expected) as load:
            for mode, lost in (("was", group["instances"][1]), ("cas", group["instances"][2])):
                left = group_of(cluster)["instances"]
                size = 4 if len(left) == 4 else 2
                together = [one for one in left if len(left) == 4 or one in left[:2]]
                lost = lost if lost in together else together[-1]
                cluster.until(lambda: group_of(cluster)["ready"] == len(left), "the group has its communicators")
                skeinctl(cluster, "share", *[str(one) for one in together], "--mode", mode)
                assert ("shared(%s)" % mode, together) in shown(cluster), group_of(cluster)
                assert len(together) == size
                load.await_more(8, "instances that share their weights answer in " + mode)
                cluster.kill(names[lost])
                cluster.until(lambda gone=lost: gone not in group_of(cluster)["instances"], "its loss is seen")
                cluster.until(lambda: [one for one, _ in shown(cluster)] == ["independent"], "the others work alone")
                load.await_more(16, "the others answer")
        cluster.assert_idle_and_whole()


def a_group_shares_its_weights_for_a_job_by_itself():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        flags = ["--jobs-dir=" + os.path.join(folder, "jobs"), "--formation-share-lines=2", "--formation-dwell-s=0"]
        with up(orchestrator_flags=flags) as cluster:
            await_group(cluster, 2)
            bodies = asked(6)
            expected = [answer_of(cluster, body)[0] for body in bodies]
            lines = {"line-%d" % i: {"model": cluster.name, **bodies[i % len(bodies)]} for i in range(120)}
            job = Job([cluster.url], lines)
            job.submit()
            state = job.await_end(180)
            assert state["status"] == "completed" and state["request_counts"]["completed"] == len(lines), state
            for line in job.output(state):
                choice, = line["response"]["body"]["choices"]
                assert choice["token_ids"] == expected[int(line["custom_id"].split("-")[1]) % len(bodies)], line
            orchestrator = cluster.processes["orchestrator"]
            binds = cluster.metric(orchestrator, "skein_formation_switches_total", 'kind="bind",outcome="done",own="share"')
            assert binds >= 1, group_of(cluster)
            cluster.until(lambda: [name for name, _ in shown(cluster)] == ["independent"], "the instances work alone after the job")
            cluster.assert_idle_and_whole()


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


def what_is_shared_is_in_memory_once():
    noise = 12 * MIB  # stacks and heaps of threads, KV that was not written before
    bodies = asked(8)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder, concurrent.futures.ThreadPoolExecutor(8) as pool:
        with up(wide_model(os.path.join(folder, "wide")), gib=0.375) as cluster:
            group = await_group(cluster, 2)
            names = sorted(members(cluster).values())
            expected = [answer_of(cluster, body) for body in bodies]

            def ask_all():
                computed = [cluster.metric(cluster.processes[name], "skein_output_tokens_computed_total") for name in names]
                assert list(pool.map(lambda body: answer_of(cluster, body), bodies)) == expected
                for name, tokens in zip(names, computed):
                    assert cluster.metric(cluster.processes[name], "skein_output_tokens_computed_total") > tokens, name + " had no request"
                return memory(cluster, names)

            before = ask_all()
            skeinctl(cluster, "share", "--group", group["name"], "--mode", "was")
            shared = ask_all()
            skeinctl(cluster, "release", "--group", group["name"])
            after = ask_all()
            print("MiB before, shared, after: %s" % [{key: one[key] // MIB for key in one} for one in before + shared + after])
            for rank in range(2):
                # Of 8 layers none is private any more, but a slot's worth of one; half of them are others' as well.
                assert shared[rank]["private"] <= before[rank]["private"] - 7 * LAYER + noise, (rank, before, shared)
                assert shared[rank]["pss"] <= before[rank]["pss"] - 3 * LAYER + noise, (rank, before, shared)
                assert after[rank]["pss"] >= before[rank]["pss"] - noise, (rank, before, after)
            total = [sum(one["pss"] for one in each) for each in (before, shared)]
            # Of 16 copies of a layer 8 are left, and 2 slots.
            assert total[1] <= total[0] - 6 * LAYER + 2 * noise, (before, shared)
            cluster.assert_idle_and_whole()


def kv_blocks(cluster, names, state="total"):
    return [cluster.metric(cluster.processes[name], "skein_kv_blocks", 'state="%s"' % state) for name in names]


def told_blocks(cluster):
    return sorted(one["blocks"]["total"] for one in cluster.status()["instances"] if one["role"] == "decode")


def what_sharing_frees_is_kv_blocks_at_once():
    """Pools so small that requests wait, until the weights of others are let go; and again when they are back."""
    bodies = asked(12)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        model = wide_model(os.path.join(folder, "wide"))
        gib = 0.375
        with up(model, gib=gib) as cluster:
            blocks = cluster.metric(cluster.processes[next(iter(members(cluster).values()))], "skein_kv_blocks", 'state="total"')
        own = 24
        with up(model, gib=gib - (blocks - own) * KV_BLOCK / (1 << 30)) as cluster:
            group = await_group(cluster, 2)
            names = sorted(members(cluster).values())
            before = kv_blocks(cluster, names)
            assert all(own - 2 <= count <= own + 2 for count in before), before
            expected = [answer_of(cluster, body) for body in bodies]
            with Load(cluster, bodies, expected) as load:
                load.await_more(6, "instances alone answer")
                for mode in ("was", "cas"):
                    skeinctl(cluster, "share", "--group", group["name"], "--mode", mode)
                    shared = kv_blocks(cluster, names)
                    # 4 of 8 layers are let go, and one comes in tiles; the rows of others have buffers.
                    for count, alone in zip(shared, before):
                        assert alone + 2 * LAYER / KV_BLOCK < count < alone + 4 * LAYER / KV_BLOCK, (before, shared)
                    cluster.until(lambda: max(kv_blocks(cluster, names, "held")) > own + 2, "sequences have the new blocks")
                    cluster.until(lambda told=shared: told_blocks(cluster) == sorted(told), "skeinctl status shows them")
                    load.await_more(12, "instances with more blocks answer in " + mode)
                    skeinctl(cluster, "release", "--group", group["name"])
                    assert kv_blocks(cluster, names) == before
                    print("KV blocks before, in and after shared(%s): %s, %s, %s" % (mode, before, shared, kv_blocks(cluster, names)))
                    load.await_more(12, "instances with their own blocks answer")
            cluster.assert_idle_and_whole()
            assert kv_blocks(cluster, names) == before


if __name__ == "__main__":
    run_tests(answers_are_those_of_independent_instances, a_member_that_is_killed_takes_no_answer_with_it,
              a_group_shares_its_weights_for_a_job_by_itself, what_is_shared_is_in_memory_once, what_sharing_frees_is_kv_blocks_at_once)
