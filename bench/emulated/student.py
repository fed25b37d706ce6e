"""The mean of a sample and its 95 % interval, by Student's t."""
import math
import statistics

# The 97.5 % quantile of Student's distribution for 1, 2, 3 ... degrees of freedom; beyond the table its last value, which is a little too large.
QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
             2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def interval(values):
    """The mean, and half the width of its interval; infinite for one value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.inf
    quantile = QUANTILES[min(len(values) - 1, len(QUANTILES)) - 1]
    return mean, quantile * statistics.stdev(values) / math.sqrt(len(values))
