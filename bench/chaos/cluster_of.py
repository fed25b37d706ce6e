"""The cluster of bench/chaos: emulated workers and what they are started with, one line of arguments for both commands."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/emulated"), str(ROOT / "tests/chaos"), str(ROOT / "tests/cluster")]
from binaries import binaries  # noqa: E402
from cluster import free_ports  # noqa: E402
from emulated import emulated_model  # noqa: E402
from supervised import Supervised  # noqa: E402
from tls import TlsCluster  # noqa: E402


def add_arguments(parser):
    parser.add_argument("--prefill", type=int, default=2)
    parser.add_argument("--decode", type=int, default=2)
    parser.add_argument("--routers", type=int, default=2, help="clients go to the next one when one leaves")
    parser.add_argument("--orchestrators", type=int, default=2, help="one leads, the others stand by")
    parser.add_argument("--step-us", type=int, default=10000, help="time of a decode step")
    parser.add_argument("--drain-grace-s", type=float, default=5, help="time that a decode-worker has for its streams after SIGTERM")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=500, help="of the shortest answer; the longest has nearly twice as many")
    parser.add_argument("--model", default="", help="a folder of weights for device=cpu with reproducible sums; empty: emulated workers")
    parser.add_argument("--tls", action="store_true", help="all connections in TLS, with certificates by role")
    parser.add_argument("--out", default="", help="file for the result as JSON")
    parser.add_argument("--config", default="opt", help="of bazel; empty: fastbuild")
    parser.add_argument("--bin", default="", help="bazel-bin of binaries that are built already")


class Redundant(Supervised):
    """With as many routers and orchestrators as are asked for. One orchestrator leads, the others stand by. `store`: flags by which they elect."""

    def __init__(self, *arguments, routers, orchestrators, store=("--store=embedded",), **more):
        super().__init__(*arguments, **more)
        self.store = store
        self.routers = ["router", *("router%d" % i for i in range(1, routers))]
        self.orchestrators = ["orchestrator", *("orchestrator%d" % i for i in range(1, orchestrators))]
        first = free_ports(routers + orchestrators)
        self.ports = {name: first + i for i, name in enumerate([*self.routers, *self.orchestrators])}

    def start(self):
        self.orchestrator = "+".join("127.0.0.1:%d" % self.ports[name] for name in self.orchestrators)
        elected = self.store if len(self.orchestrators) > 1 else []
        for name in self.orchestrators:
            self.run(name, "orchestrator", ["--port=0", *elected, *self.flags["orchestrator"]])
            self.until(lambda: self.metric(self.processes["orchestrator"], "skein_orchestrator_leader{") == 1, "the first one leads")
        for role in ("prefill", "decode"):
            for i in range(self.counts[role]):
                self.start_worker(role, i)
        for name in self.routers:
            self.run(name, "router", ["--orchestrator=" + self.orchestrator, "--port=0", "--model=%s=%s" % (self.name, self.model)])
        self.urls = ["%s://127.0.0.1:%d" % (self.scheme, self.ports[name]) for name in self.routers]
        for self.url in reversed(self.urls):
            self.await_ready()
        self.until(lambda: self.serving() >= len(self.workers()), "each worker serves")

    def run(self, name, binary, arguments):
        if name == "orchestrator":  # its flags are among the arguments
            arguments = [one for one in arguments if one not in self.flags["orchestrator"]]
        super().run(name, binary, arguments)

    def chaos(self, *arguments, **more):
        return super().chaos(*("--url=" + url for url in self.urls[1:]), *arguments, **more)

    def stop(self):
        bad = [problem for name in self.routers + [n for n in self.processes if "-" in n] + self.orchestrators
               if (problem := self.end(name))]
        assert not bad, "\n".join(bad)


class InTls(TlsCluster, Redundant):
    """The same, each process with a certificate of its role."""


def cluster_of(options, folder, store=("--store=embedded",)):
    model = options.model or emulated_model(folder, str(ROOT / "deploy/models/fledgling"), 65536)
    device = ["--reproducible=on"] if options.model else ["--device=emulated"]
    step = [] if options.model else ["--emulated-decode-step-us=%d" % options.step_us]
    kind = InTls if options.tls else Redundant
    return kind(binaries(options.bin, options.config), model, routers=options.routers, orchestrators=options.orchestrators, store=store,
                prefill=options.prefill, decode=options.decode,
                worker_flags=device, decode_flags=[*step, "--drain-grace-s=%g" % options.drain_grace_s],
                orchestrator_flags=["--state-dir=" + os.path.join(folder, "state")], restart_after_s=1)


def load_of(options):
    # Emulated workers compute prompts fast: long ones keep handoffs under way.
    return ["--streams=%d" % options.streams, "--tokens=%d" % options.tokens,
            "--handoff-prompt-tokens=%d" % (1024 if options.model else 20000)]
