"""The step `chaos`: skeinctl chaos breaks pods of overlays/ha under long streams, as a user runs it; its fault table is printed."""
import os

from trial import Failed
from workload import MODEL, NAMESPACE

LOADER, LIBRARIES = "ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"
# Few streams for two cores, of which each token is compared.
LOAD = ("--streams=4", "--prompts=4", "--tokens=500", "--hung-after-s=300", "--whole-within-s=300")
ROLES = ("decode", "prefill", "router")
DEGRADED = 3  # exit status: some answers were not as they must be


class Chaos:
    def chaos(self):
        """Real weights give the same answer in any batch only with reproducible sums."""
        for name in ("prefill", "decode"):
            self.cluster.kubectl("-n", NAMESPACE, "set", "env", "statefulset/" + name, "SKEIN_REPRODUCIBLE=on")
        try:
            self.skein.await_settled(limit_s=600)
            program = self._skeinctl()
            bad = [name for name in ROLES if not self._play(program, "kill-" + name, "term-" + name)]
            for fault in ("kill", "term"):
                _, standby = self.skein.orchestrators()
                if not self._play(program, fault + "-orchestrator", "--spare=" + standby["metadata"]["name"]):
                    bad.append(fault + " of the orchestrator that leads")
        finally:
            for name in ("prefill", "decode"):
                self.cluster.kubectl("-n", NAMESPACE, "set", "env", "statefulset/" + name, "SKEIN_REPRODUCIBLE-")
            self.skein.await_settled(limit_s=600)
        if bad:
            raise Failed("some answers were not as they must be: " + ", ".join(bad))

    def _play(self, program, *arguments):
        """Whether all was well."""
        cluster = ("--kubernetes", "--namespace=" + NAMESPACE, "--kubeconfig=" + self.cluster.control.kubeconfig("admin"),
                   "--url=" + self.skein.url(), "--model=" + MODEL)
        done = self.skein.client.sh(*program, "chaos", *arguments, "--yes", *cluster, *LOAD, check=False)
        self.say(done.stdout.strip() or "nothing was played")
        if done.returncode not in (0, DEGRADED):
            raise Failed("skeinctl chaos ended with %d: %s" % (done.returncode, done.stderr.strip()[-1500:]))
        return done.returncode == 0

    def _skeinctl(self):
        """The command that runs skeinctl out of a router's image, with the image's libraries: the build that the pods have."""
        pod = self.skein.pods("router")[0]
        machine = self.cluster.machines[pod["spec"]["nodeName"]]
        root = "/proc/%d/root/" % self.skein.process_of(pod)
        folder = os.path.join(self.cluster.folder, "skeinctl")
        machine.sh("mkdir", "-p", folder)
        machine.sh("cp", "-r", "--dereference", root + LIBRARIES, folder + "/libraries")
        machine.sh("cp", "--dereference", root + "usr/bin/skeinctl", folder)
        return ["%s/libraries/%s" % (folder, LOADER), "--library-path", folder + "/libraries", folder + "/skeinctl"]
