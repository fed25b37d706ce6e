#!/usr/bin/env python3
"""Names, comments and texts of the sources have one word per concept (docs/glossary.md).

Each rule has a pattern (upper and lower case alike), what to say instead, the folders in which it holds, and exceptions: parts of
paths, each with the reason why the word is right there. An exception that nothing needs any more fails the test.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
from cluster import run_tests  # noqa: E402  pylint: disable=wrong-import-position

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
ALL = ("scheduler", "services", "proto", "engine")
SUFFIXES = (".cc", ".h", ".cu", ".proto", ".md", "BUILD")
TEST = re.compile(r"_(test|suite|check)\.cc$|/testing/|/conformance/")

RULES = [
    {"word": r"backend", "say": "staging buffer, for a decode side's buffer; a backend is CPU or CUDA", "in": ("scheduler", "services", "proto", "engine/handoff"),
     "but": {"services/worker/group/cuda_workers_test.cc": "the CUDA backend",
             "services/worker/group/BUILD": "the same",
             "services/worker/process/decode_process.cc": "metrics keep their names",
             "scheduler/kv/staging_buffer_queue.h": "quotes Tetris, which calls the buffers so",
             "proto/decode_worker.proto": "quotes Tetris",
             "services/README.md": "quotes Tetris",
             "services/openai/generation_parameters.cc": "the name of a parameter of vLLM's API",
             "engine/handoff/handoff_sender.h": "quotes Tetris"}},
    {"word": r"spanning|plans? (that )?spans?\b|_span_test", "say": "SP plan, ring step", "in": ALL,
     "but": {"services/orchestrator/orchestrator_process.cc": "metrics keep their names"}},
    {"word": r"common steps?\b", "say": "ring step", "in": ("scheduler", "services", "proto"), "but": {}},
    {"word": r"chunk", "say": "segment for a part of a transfer, slice for a batch's share of a prompt", "in": ("engine",),
     "but": {"engine/step.h": "a ring sequence is a piece of a chunk of an SP plan",
             "engine/README.md": "the same",
             "engine/comm/ring_fabric.h": "the same",
             "engine/model/ring/": "the same",
             "engine/model/testing/ranks/": "the same",
             "engine/model/reproducible_test.cc": "the same",
             "engine/model/reproducible_load_test.cc": "the same",
             "engine/model/far_device_test.cc": "the same",
             "engine/cuda/engine/together_test.cc": "the same",
             "engine/handoff/": "a handoff sends the layers of the chunks of an SP plan",
             "engine/ops/cpu/kernels/": "attention kernels take keys in chunks, as Flash-Decoding calls them"}},
    {"word": r"chunk_tokens|chunks? of prompts", "say": "slice, for a batch's share of a prompt", "in": ("scheduler", "services", "proto"),
     "but": {"scheduler/plan/": "the planner's chunks are those of SP plans",
             "services/codec/": "samples of equation 1 are of chunks; the CSV keeps its columns",
             "services/skeinctl/planning/": "the same",
             "services/worker/engine/step_log": "the same",
             "services/worker/prefill/prefill_service.cc": "the same",
             "proto/prefill_worker.proto": "the same"}},
    {"word": r"(?<![a-z])lanes?(?![a-z])", "say": "transport or path, for how bytes go", "in": ("scheduler", "services", "proto", "engine/transport", "engine/handoff", "engine/ucx"),
     "but": {"services/worker/group/cuda_workers_test.cc": "lanes of the kernels of collectives",
             "engine/transport/ucx/ucx_rma": "reads the lanes in UCX's text",
             "engine/transport/ucx/ucx_transport.h": "UCX's lanes",
             "engine/ucx/ucx_context.cc": "reads the lanes in UCX's text"}},
    {"word": r"few rows", "say": "skinny GEMM", "in": ("engine/cuda",),
     "but": {"engine/cuda/skinny_gemm/": "says what a skinny GEMM is"}},
    {"word": r"\bdr[ae]wn?s?\b", "say": "sample, for choosing a token", "in": ALL, "without_tests": True,
     "but": {"services/skeinctl/": "draws on paper and screens, and numbers from a generator"}},
    {"word": r"foresee|foreseen", "say": "estimated", "in": ALL, "but": {}},
    {"word": r"overslep|oversleep", "say": "lease expired", "in": ALL, "but": {}},
    {"word": r"\bsaid again|\bsays? it again|(?<![a-z])wish(es)?(?![a-z])", "say": "duplicate, retry", "in": ALL, "but": {}},
    {"word": r"BeginPrefill|AskBackend|AskForGrant|GrantCalled|GenerateRequest", "say": "ReserveDecode, AcquireStagingBuffer, OpenTransfer, StreamTokens", "in": ALL, "but": {}},
    {"word": r"handover", "say": "handoff", "in": ALL, "but": {}},
    {"word": r"GroupKey|group_key", "say": "GroupDigest, beside GroupId", "in": ("engine", "services"), "but": {}},
    {"word": r"is absurd|who planned|not as it stands|for nobody|holds others|on its way here|is none for|who takes plans|gave it up\"|"
             r"told otherwise|alive ?by|heard for ever|has its most|unknown and hears|another number of results",
     "say": "a sentence with a subject: what is wrong, with the field, the value and the limit", "in": ("scheduler", "services"), "but": {}},
]


def files():
    """(path, text) of each source."""
    for folder in ALL:
        for parent, folders, names in os.walk(os.path.join(ROOT, folder)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(SUFFIXES):
                    path = os.path.join(parent, name)
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, ROOT), file.read()


def holds_in(rule, path):
    if rule.get("without_tests") and TEST.search(path):
        return False
    return any(path.startswith(folder + "/") for folder in rule["in"])


def one_word_per_concept():
    wrong, needed, count = [], set(), 0
    for path, text in files():
        count += 1
        for number, rule in enumerate(RULES):
            if not holds_in(rule, path):
                continue
            word = re.compile(rule["word"], re.I)
            found = [(path, "")] if word.search(os.path.basename(path)) else []
            if word.search(text):
                found += [("%s:%d" % (path, line), content.strip()) for line, content in enumerate(text.split("\n"), 1) if word.search(content)]
            if not found:
                continue
            excepted = [part for part in rule["but"] if path.startswith(part)]
            needed.update((number, part) for part in excepted)
            if not excepted:
                wrong += ["%s: say %s: %s" % (place, rule["say"], content) for place, content in found]
    assert count > 1000, count
    assert not wrong, "\n" + "\n".join(wrong)
    stale = [(rule["word"], part) for number, rule in enumerate(RULES) for part in rule["but"] if (number, part) not in needed]
    assert not stale, "exceptions that nothing needs: %s" % stale


if __name__ == "__main__":
    run_tests(one_word_per_concept)
