// One axis of a plot: maps values to pixels and chooses tick values. Pure.
#pragma once

#include <string>
#include <vector>

namespace skein::services {

class PlotAxis {
 public:
  // Covers [low, high] in pixels. A linear axis is widened to whole ticks, a logarithmic one to 1,
  // 2 or 5 times a power of ten. A single value gets room on both sides. REQUIRES low <= high, both
  // finite; `log`: low > 0.
  PlotAxis(double low, double high, bool log, double from_pixel, double to_pixel);

  bool log() const { return log_; }
  double low() const { return low_; }
  double high() const { return high_; }
  double At(double value) const;

  // Labelled values: steps of 1, 2 or 5 times a power of ten. A logarithmic axis has decades, or 1,
  // 2, 5 of each when it spans less than two and a half.
  const std::vector<double>& ticks() const { return ticks_; }
  // Values with a faint line and no label: 2 ... 9 of each decade.
  std::vector<double> MinorTicks() const;

 private:
  void FitLinear();
  void FitLog();

  double low_;
  double high_;
  const bool log_;
  const double from_pixel_;
  const double to_pixel_;
  std::vector<double> ticks_;
};

// At most four significant digits, no exponent between 0.0001 and 999999.
std::string TickLabel(double value);

}  // namespace skein::services
