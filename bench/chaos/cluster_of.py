"""The cluster of bench/chaos: emulated workers and what they are started with, one line of arguments for both commands."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/emulated"), str(ROOT / "tests/chaos"), str(ROOT / "tests/cluster")]
from binaries import binaries  # noqa: E402
from emulated import emulated_model  # noqa: E402
from supervised import Supervised  # noqa: E402


def add_arguments(parser):
    parser.add_argument("--prefill", type=int, default=2)
    parser.add_argument("--decode", type=int, default=2)
    parser.add_argument("--step-us", type=int, default=10000, help="time of a decode step")
    parser.add_argument("--drain-grace-s", type=float, default=5, help="time that a decode-worker has for its streams after SIGTERM")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=500, help="of the shortest answer; the longest has nearly twice as many")
    parser.add_argument("--model", default="", help="a folder of weights for device=cpu with reproducible sums; empty: emulated workers")
    parser.add_argument("--out", default="", help="file for the result as JSON")
    parser.add_argument("--config", default="opt", help="of bazel; empty: fastbuild")
    parser.add_argument("--bin", default="", help="bazel-bin of binaries that are built already")


def cluster_of(options, folder):
    model = options.model or emulated_model(folder, str(ROOT / "deploy/models/fledgling"), 65536)
    device = ["--reproducible=on"] if options.model else ["--device=emulated"]
    step = [] if options.model else ["--emulated-decode-step-us=%d" % options.step_us]
    return Supervised(binaries(options.bin, options.config), model, prefill=options.prefill, decode=options.decode,
                      worker_flags=device, decode_flags=[*step, "--drain-grace-s=%g" % options.drain_grace_s],
                      orchestrator_flags=["--state-dir=" + os.path.join(folder, "state")], restart_after_s=1)


def load_of(options):
    return ["--streams=%d" % options.streams, "--tokens=%d" % options.tokens]
