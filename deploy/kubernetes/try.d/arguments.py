"""The arguments of deploy/kubernetes/try, checked before anything is touched."""
import os
import sys

# Every step, in the order in which the trial takes them, with what it shows.
STEPS = {
    "demo": "kubectl apply of overlays/demo until the first token through the Service",
    "ha": "overlays/ha over it: two of each role on both nodes, and an etcd of three; first token",
    "scale-out": "more prefill- and decode-workers under load; no request may fail",
    "scale-in": "back again under load; no request may fail",
    "roll-routers": "rolling update of the routers under load; no request may fail",
    "roll-prefill": "rolling update of the prefill-workers under load; no request may fail",
    "roll-decode": "rolling update of the decode-workers under load; streams that end are counted",
    "pod-kill": "a prefill-worker is killed and a router's pod deleted; the time until all is ready again",
    "chaos": "skeinctl chaos: kills and ends a pod of each role under long streams; its fault table",
    "node-drain": "kubectl drain of each node under load; budgets hold; the pods come back on the other node; no request may fail",
    "node-lost": "the node with the orchestrator that leads is gone without a word; the other one leads; then it comes back",
    "bad-image": "an update to an image that does not exist; the old pods go on serving",
    "missing-model": "a worker whose model is not there says what it waits for",
    "quota": "a quota stops a scale-out; the event says so; it goes on when the quota is gone",
    "hpa": "the autoscaler's query against a real Prometheus in the cluster, and the replicas that it would choose",
    "policies": "the connections that were seen equal those that the NetworkPolicies allow",
    "node-pod": "instead of all that, pods as GPU nodes have them: a process for each device under skein-node, on CPU devices",
}
# What must have been deployed for a step to make sense.
NEEDS_HA = [name for name in STEPS if name not in ("demo", "ha", "node-pod")]


class Options:
    def __init__(self):
        self.steps, self.keep, self.down = [], False, False
        self.bin, self.images = "", ""
        self.cache = os.environ.get("SKEIN_TRY_CACHE") or os.path.expanduser("~/.cache/skein/kubernetes")


def refuse(text):
    print("try: " + text, file=sys.stderr)
    sys.exit(2)


def parse(arguments, help_text):
    options, rest = Options(), []
    for argument in arguments:
        rest += argument.split("=", 1) if argument.startswith("--") and "=" in argument else [argument]
    while rest:
        argument = rest.pop(0)
        if argument in ("--help", "-h"):
            print(help_text.strip())
            sys.exit(0)
        if argument == "--list":
            print("\n".join("%-14s %s" % item for item in STEPS.items()))
            sys.exit(0)
        if argument in ("--keep", "--down"):
            setattr(options, argument[2:], True)
        elif argument in ("--step", "--bin", "--images"):
            if not rest or not rest[0]:
                refuse("%s needs a value" % argument)
            _value(options, argument, rest.pop(0))
        else:
            refuse("unknown argument '%s'; see deploy/kubernetes/try --help" % argument)
    if options.down and (options.steps or options.keep):
        refuse("--down goes with no other argument")
    options.steps = chosen(options.steps)
    return options


def _value(options, argument, value):
    if argument == "--step":
        for name in value.split(","):
            if name not in STEPS:
                refuse("--step: no step '%s'; the steps are %s" % (name, ", ".join(STEPS)))
            options.steps.append(name)
    elif not os.path.isdir(value):
        refuse("%s: no folder '%s'" % (argument, value))
    else:
        setattr(options, argument[2:], os.path.realpath(value))


def chosen(names):
    """The steps to go through: those named and what they need, in order; all if none is named."""
    if not names:
        return list(STEPS)
    wanted = set(names)
    if wanted & set(NEEDS_HA):
        wanted.add("ha")
    if "policies" in wanted:
        wanted.add("pod-kill")  # only then do decode-workers connect to prefill-workers
    return [name for name in STEPS if name in wanted]
