"""How the HorizontalPodAutoscaler and the metrics adapter compute: the query that a rule gives, and the replicas for a value.

Pure functions. The formula stands in Kubernetes' documentation, "Horizontal Pod Autoscaling", section "Algorithm details"; the
templates in prometheus-adapter's documentation, "Metrics Discovery and Presentation Configuration".
"""
import math
import re

TOLERANCE = 0.1


def query_of(rule, series, namespace, pods):
    """The PromQL of an adapter's rule for some pods of a namespace."""
    matchers = 'namespace="%s",pod=~"%s"' % (namespace, "|".join(sorted(pods)))
    text = rule["metricsQuery"]
    for name, value in (("Series", series), ("LabelMatchers", matchers), ("GroupBy", "pod")):
        text = re.sub(r"<<\s*\.%s\s*>>" % name, lambda _, v=value: v, text)
    return text


def metric_name(rule, series):
    """The name under which the adapter offers the series."""
    name = rule.get("name", {})
    given, pattern = name.get("as", ""), name.get("matches", "^(.*)$")
    if not given:
        return series
    return re.sub(pattern, re.sub(r"\$\{?(\d+)\}?", r"\\\1", given), series)


def quantity(text):
    """A Kubernetes quantity as a number: 800m, 2, 1.5k, 1Gi."""
    number, unit = re.fullmatch(r"([0-9.]+)(m|k|M|G|Ki|Mi|Gi)?", str(text)).groups()
    return float(number) * {None: 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]


def replicas(current, average, target, minimum, maximum):
    """What the autoscaler would choose for one metric: ceil(current * average / target), but for small differences."""
    ratio = average / target
    wanted = current if abs(ratio - 1) <= TOLERANCE else math.ceil(current * ratio)
    return min(max(wanted, minimum), maximum)
