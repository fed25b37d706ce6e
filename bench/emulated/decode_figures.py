"""What is measured of decode, of a live cluster and of `skeinctl simulate` alike: times per token, the wait for the first decode
step, the gap between the first two tokens, the peak of tokens per second, and the share of the steps by mode."""
import csv
import dataclasses
import json
import statistics
from typing import Dict, List

from streams import percentile

MODES = ("own", "tp", "sp", "sp_tp")  # of steps, as in docs/metrics.md
WINDOW_S = 5.0  # of the peak; scheduler/simulator/formations/decode_groups.h has the same


@dataclasses.dataclass
class Decoded:
    """A request's decode."""
    phase: str
    tpot_s: float
    first_gap_s: float  # from its first token to the second: the wait for its first decode step, and that step
    queue_s: float      # that wait alone: from when its prompt's KV is at the decode instance


def of_outcome(outcome, phase, queue_s):
    """Of a streamed answer of more than one token."""
    times = outcome.times_s
    return Decoded(phase, (times[-1] - times[0]) / (len(times) - 1), times[1] - times[0], queue_s)


def queue_of_logs(texts):
    """By the id of the answer: the wait for the first decode step, of the logs of decode-workers with --log-level=debug."""
    found = {}
    for text in texts:
        for line in text.splitlines():
            if '"decode began"' in line:
                fields = json.loads(line)
                found[fields["id"]] = fields["decode_queue_us"] / 1e6
    return found


def of_simulation(path, tokens, phases):
    """Of the CSV of `skeinctl simulate --decode-requests`, by request; `tokens`: that each request has."""
    decoded = []
    with open(path, encoding="utf-8") as f:
        for row in csv.DictReader(f):
            i, first = int(row["request"]), float(row["first_token_s"])
            decoded.append(Decoded(phases[i], (float(row["last_token_s"]) - first) / (tokens[i] - 1),
                                   float(row["second_token_s"]) - first, float(row["decode_start_s"]) - first))
    return decoded


def most_in_window(times, window_s=WINDOW_S):
    """The most of these times within (t - window, t]."""
    times, most, oldest = sorted(times), 0, 0
    for newest, at in enumerate(times):
        while times[oldest] <= at - window_s:
            oldest += 1
        most = max(most, newest - oldest + 1)
    return most


def figures(decoded, phases) -> Dict[str, float]:
    """By name, in seconds."""
    named = {}
    for phase in phases:
        of_phase = [one for one in decoded if one.phase == phase]
        for name, values in (("TPOT", [one.tpot_s for one in of_phase]), ("queue", [one.queue_s for one in of_phase]),
                             ("gap 1", [one.first_gap_s for one in of_phase])):
            for share in (0.5, 0.9):
                named["%s %s P%d" % (phase, name, 100 * share)] = percentile(values, share) if values else 0.0
    return named


def medians(runs: List[Dict[str, float]]) -> Dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def shares(steps: Dict[str, float]) -> Dict[str, float]:
    """Of the steps by mode, of MODES."""
    total = sum(steps.values()) or 1.0
    return {mode: steps.get(mode, 0.0) / total for mode in MODES}
