#!/usr/bin/env python3
"""Memory of decode-workers that share their weights: what they share is there once, and what that frees is KV blocks meanwhile. The model's
file cannot be read after the load, so weights come from their owners only; where an owner was killed they come from the file."""
import concurrent.futures
import os
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import run_tests  # noqa: E402
from sharing import (KV_BLOCK, LAYER, MIB, WIDE, Load, answer_of, asked, await_group, group_of, kv_blocks, members, memory, shown,  # noqa: E402
                     told_blocks, up, wide_model)


GIB = 0.375  # of each worker: all weights, and KV
OWNED = WIDE["num_hidden_layers"] // 2  # layers of each of two


def up_with_own_weights(model, gib=GIB, decode=2, **more):
    """The prefill-worker has the weights in memory of its own, too."""
    return up(model, gib=gib, decode=decode, prefill_flags=["--device-memory-gib=%g" % GIB], **more)


def make_unreadable(cluster):
    """From now on nobody gets a weight from the model's file: it is empty, and no worker has it mapped."""
    path = os.path.join(cluster.model, "model.safetensors")
    for process in cluster.workers():
        with open("/proc/%d/maps" % process.popen.pid, encoding="utf-8") as maps:
            assert path not in maps.read(), process.name + " has the model's file mapped"
    os.truncate(path, 0)


def bytes_read(cluster, name, source):
    return cluster.metric(cluster.processes[name], "skein_shared_weight_bytes_total", 'source="%s"' % source)


def rows(cluster, name, direction):
    return cluster.metric(cluster.processes[name], "skein_shared_rows_total", 'direction="%s"' % direction)


def given_up(cluster, name):
    return cluster.metric(cluster.processes[name], "skein_shared_calls_given_up_total")


def tokens_of(cluster, name):
    return cluster.metric(cluster.processes[name], "skein_output_tokens_computed_total")


def steps_of(cluster, name):
    """Of the engine, each of which runs all layers."""
    process = cluster.processes[name]
    return cluster.metric(process, "skein_engine_steps_total", 'mode="own"') + cluster.metric(process, "skein_engine_probes_total")


def what_is_shared_is_in_memory_once():
    noise = 12 * MIB  # stacks and heaps of threads, KV that was not written before
    buffers = 8 * MIB  # of the rows of two calls
    bodies = asked(8)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder, concurrent.futures.ThreadPoolExecutor(8) as pool:
        with up_with_own_weights(wide_model(os.path.join(folder, "wide"))) as cluster:
            group = await_group(cluster, 2)
            names = sorted(members(cluster).values())
            make_unreadable(cluster)
            expected = [answer_of(cluster, body) for body in bodies]

            def ask_all():
                computed = [tokens_of(cluster, name) for name in names]
                assert list(pool.map(lambda body: answer_of(cluster, body), bodies)) == expected
                for name, tokens in zip(names, computed):
                    assert tokens_of(cluster, name) > tokens, name + " had no request"
                return memory(cluster, names)

            before = ask_all()
            cluster.skeinctl("share", "--group", group["name"], "--mode", "was")
            was = ask_all()
            cluster.skeinctl("share", "--group", group["name"], "--mode", "cas")
            cas = ask_all()
            cluster.skeinctl("release", "--group", group["name"])
            after = ask_all()
            print("MiB before, in shared(was), in shared(cas), after: %s" %
                  [[{key: one[key] // MIB for key in one} for one in each] for each in (before, was, cas, after)])
            for shared, more in ((was, 0), (cas, buffers)):
                for rank in range(2):
                    # Of 8 layers none is private any more, but a slot's worth of one; half of them are others' as well.
                    assert shared[rank]["private"] <= before[rank]["private"] - 7 * LAYER + noise + more, (rank, before, shared)
                    assert shared[rank]["pss"] <= before[rank]["pss"] - 3 * LAYER + noise + more, (rank, before, shared)
                # Of 16 copies of a layer 8 are left, and 2 slots.
                total = [sum(one["pss"] for one in each) for each in (before, shared)]
                assert total[1] <= total[0] - 6 * LAYER + 2 * (noise + more), (before, shared)
            for rank in range(2):
                assert after[rank]["pss"] >= before[rank]["pss"] - noise, (rank, before, after)
                assert bytes_read(cluster, names[rank], "file") == 0
            cluster.assert_idle_and_whole()


def bytes_that_owners_send_are_those_accounted():
    """In WaS each step of an instance reads each layer of the other one once; in CaS it sends rows instead."""
    bodies = asked(8)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        with up_with_own_weights(wide_model(os.path.join(folder, "wide"))) as cluster:
            group = await_group(cluster, 2)
            names = sorted(members(cluster).values())
            make_unreadable(cluster)
            expected = [answer_of(cluster, body) for body in bodies]
            cluster.skeinctl("share", "--group", group["name"], "--mode", "was")
            before = [(steps_of(cluster, name), bytes_read(cluster, name, "owner")) for name in names]
            with Load(cluster, bodies, expected) as load:
                cluster.until(lambda: load.failures or all(steps_of(cluster, name) >= steps + 300 for name, (steps, _) in zip(names, before)),
                              "each has run 300 steps")
            cluster.until(lambda: cluster.held_blocks() == 0, "all requests have ended")
            for name, (steps, read) in zip(names, before):
                counted = (steps_of(cluster, name) - steps) * OWNED * LAYER
                sent = bytes_read(cluster, name, "owner") - read
                print("%s: %d steps, %d MiB of weights read, %d by the accounting" % (name, counted / OWNED / LAYER, sent / MIB, counted / MIB))
                # What is read ahead of a step that does not come is less than one step's.
                assert abs(sent - counted) <= 0.01 * counted, (name, sent, counted)
                assert rows(cluster, name, "sent") == 0
            cluster.skeinctl("share", "--group", group["name"], "--mode", "cas")
            with Load(cluster, bodies, expected) as load:
                load.await_more(8, "instances answer in cas")
            for name in names:
                assert rows(cluster, name, "sent") > 0 and rows(cluster, name, "served") > 0
            cluster.skeinctl("release", "--group", group["name"])
            cluster.assert_idle_and_whole()


def an_owner_that_is_stopped_in_cas_is_felt_and_done_without():
    """The orchestrator waits for it, so that the formation stands: the other one gives its calls up, and reads the weights."""
    bodies = asked(8)
    waits = ["--instance-lease-s=90", "--instance-silent-s=90"]  # workers report every sixth of a lease
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        with up_with_own_weights(wide_model(os.path.join(folder, "wide")), orchestrator_flags=waits) as cluster:
            group = await_group(cluster, 2)
            other, owner = sorted(members(cluster).values())
            make_unreadable(cluster)
            expected = [answer_of(cluster, body) for body in bodies]
            cluster.skeinctl("share", "--group", group["name"], "--mode", "cas")
            with Load(cluster, bodies, expected) as load:
                load.await_more(8, "instances answer in cas")
                cluster.processes[owner].popen.send_signal(signal.SIGSTOP)
                try:
                    gave_up, read = given_up(cluster, other), bytes_read(cluster, other, "owner")
                    cluster.until(lambda: given_up(cluster, other) > gave_up, "a call of the owner is given up")
                    tokens = tokens_of(cluster, other)
                    cluster.until(lambda: tokens_of(cluster, other) > tokens, "the other one goes on")
                    cluster.until(lambda: bytes_read(cluster, other, "owner") >= read + OWNED * LAYER, "it reads the owner's weights")
                finally:
                    cluster.processes[owner].popen.send_signal(signal.SIGCONT)
                sent = rows(cluster, other, "sent")
                cluster.until(lambda: rows(cluster, other, "sent") > sent, "the owner serves again")
                load.await_more(8, "both answer")
            assert shown(cluster) == [("shared(cas)", group["instances"])], group_of(cluster)
            cluster.skeinctl("release", "--group", group["name"])
            cluster.assert_idle_and_whole()


def the_layers_of_a_killed_owner_come_from_the_file():
    bodies = asked(8)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        with up_with_own_weights(wide_model(os.path.join(folder, "wide")), decode=3) as cluster:
            group = await_group(cluster, 3)
            name_of = members(cluster)
            other, owner = [name_of[instance] for instance in group["instances"][:2]]
            expected = [answer_of(cluster, body) for body in bodies]
            with Load(cluster, bodies, expected) as load:
                cluster.skeinctl("share", *[str(one) for one in group["instances"][:2]], "--mode", "was")
                load.await_more(8, "instances that share their weights answer")
                assert bytes_read(cluster, other, "file") == 0
                cluster.kill(owner)
                # Each step until the formation has ended, and then once more for good; nothing after that.
                cluster.until(lambda: bytes_read(cluster, other, "file") >= OWNED * LAYER, "the owner's layers are read from the file")
                cluster.until(lambda: [one for one, _ in shown(cluster)] == ["independent"], "the others work alone")
                # The orchestrator shows that a moment before the instance has its weights back.
                seen = {"read": -1, "tokens": 0}

                def goes_on_alone():
                    read, tokens = bytes_read(cluster, other, "file"), tokens_of(cluster, other)
                    if read != seen["read"]:
                        seen.update(read=read, tokens=tokens)
                    return tokens >= seen["tokens"] + 100
                cluster.until(goes_on_alone, "it computes tokens without reading any more")
                load.await_more(16, "the others answer")
                assert bytes_read(cluster, other, "file") == seen["read"]
            cluster.assert_idle_and_whole()


def what_sharing_frees_is_kv_blocks_at_once():
    """Pools so small that requests wait, until the weights of others are let go; and again when they are back."""
    bodies = asked(12)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        model = wide_model(os.path.join(folder, "wide"))
        with up_with_own_weights(model) as cluster:
            blocks = cluster.metric(cluster.processes[next(iter(members(cluster).values()))], "skein_kv_blocks", 'state="total"')
        own = 24
        with up_with_own_weights(model, GIB - (blocks - own) * KV_BLOCK / (1 << 30)) as cluster:
            group = await_group(cluster, 2)
            names = sorted(members(cluster).values())
            make_unreadable(cluster)
            before = kv_blocks(cluster, names)
            assert all(own - 2 <= count <= own + 2 for count in before), before
            expected = [answer_of(cluster, body) for body in bodies]
            with Load(cluster, bodies, expected) as load:
                load.await_more(6, "instances alone answer")
                for mode in ("was", "cas"):
                    cluster.skeinctl("share", "--group", group["name"], "--mode", mode)
                    shared = kv_blocks(cluster, names)
                    # 4 of 8 layers are let go, and one comes in tiles; the rows of others have buffers.
                    for count, alone in zip(shared, before):
                        assert alone + 2 * LAYER / KV_BLOCK < count < alone + 4 * LAYER / KV_BLOCK, (before, shared)
                    cluster.until(lambda: max(kv_blocks(cluster, names, "held")) > own + 2, "sequences have the new blocks")
                    cluster.until(lambda told=shared: told_blocks(cluster) == sorted(told), "skeinctl status shows them")
                    load.await_more(12, "instances with more blocks answer in " + mode)
                    cluster.skeinctl("release", "--group", group["name"])
                    assert kv_blocks(cluster, names) == before
                    print("KV blocks before, in and after shared(%s): %s, %s, %s" % (mode, before, shared, kv_blocks(cluster, names)))
                    load.await_more(12, "instances with their own blocks answer")
            cluster.assert_idle_and_whole()
            assert kv_blocks(cluster, names) == before


if __name__ == "__main__":
    run_tests(what_is_shared_is_in_memory_once, bytes_that_owners_send_are_those_accounted,
              an_owner_that_is_stopped_in_cas_is_felt_and_done_without, the_layers_of_a_killed_owner_come_from_the_file,
              what_sharing_frees_is_kv_blocks_at_once)
