"""A straight line through samples."""
import math


def slope(times, values):
    """The slope of the least-squares line, and its standard error. At least three samples at different times."""
    count = len(times)
    mean_time, mean_value = sum(times) / count, sum(values) / count
    spread = sum((time - mean_time) ** 2 for time in times)
    found = sum((time - mean_time) * (value - mean_value) for time, value in zip(times, values)) / spread
    rest = sum((value - mean_value - found * (time - mean_time)) ** 2 for time, value in zip(times, values))
    return found, math.sqrt(rest / (count - 2) / spread)
