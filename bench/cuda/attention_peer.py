#!/usr/bin/env python3
"""PyTorch's scaled-dot-product attention at the shapes of attention_bench, on the first GPU.

  bench/cuda/attention_peer.py [ROUNDS]      (default 30)

Causal prefill of bf16 with 32 query heads over 8 KV heads of 128 dims, contiguous: by FlashAttention and by cuDNN where this
PyTorch has them. They take turns in each round; figures are medians of device times.
"""
import argparse
import statistics

PARSER = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("rounds", nargs="?", type=int, default=30)
OPTIONS = PARSER.parse_args()  # before torch is needed, so that --help answers without it

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
PROMPTS = (1024, 8192, 32768)
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def attend(backend, q, k, v):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def seconds(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def cases():
    for prompt in PROMPTS:
        q, k, v = (torch.randn(1, heads, prompt, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
                   for heads in (HEADS, KV_HEADS, KV_HEADS))
        for name, backend in BACKENDS.items():
            run = lambda backend=backend, q=q, k=k, v=v: attend(backend, q, k, v)
            try:
                run()
            except RuntimeError as error:
                print("prefill %d, %s: not here: %s" % (prompt, name, str(error).splitlines()[0]))
                continue
            yield "prefill %d, %s" % (prompt, name), 4.0 * HEAD_DIM * HEADS * prompt * (prompt + 1) / 2, run


def main():
    rounds = OPTIONS.rounds
    print("%s, PyTorch %s; medians of %d rounds" % (torch.cuda.get_device_name(0), torch.__version__, rounds))
    runs = list(cases())
    times = {name: [] for name, _, _ in runs}
    for turn in range(rounds + 1):
        for name, _, run in runs:
            taken = seconds(run)
            if turn > 0:  # the first warms up
                times[name].append(taken)
    for name, flops, _ in runs:
        taken = statistics.median(times[name])
        print("%-28s %10.1f us %8.1f GFLOP/s" % (name, taken * 1e6, flops / taken * 1e-9))


if __name__ == "__main__":
    main()
