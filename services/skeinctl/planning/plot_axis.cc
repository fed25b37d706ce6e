#include "services/skeinctl/planning/plot_axis.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace skein::services {
namespace {

constexpr double kTicks = 5;  // approximate number on a linear axis
constexpr double kSlack = 1e-9;

double StepFor(double span) {
  const double rough = span / kTicks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double multiple : {1.0, 2.0, 5.0}) {
    if (rough <= power * multiple * (1 + kSlack)) return power * multiple;
  }
  return power * 10;
}

// All 1, 2, 5 times a power of ten from the last one <= low to the first one >= high.
std::vector<double> RoundValues(double low, double high) {
  std::vector<double> values;
  const int first = static_cast<int>(std::floor(std::log10(low) + kSlack));
  const int last = static_cast<int>(std::ceil(std::log10(high) - kSlack));
  for (int exponent = first; exponent <= last; ++exponent) {
    for (const double multiple : {1, 2, 5}) values.push_back(multiple * std::pow(10, exponent));
  }
  while (values.size() > 1 && values[1] <= low * (1 + kSlack)) values.erase(values.begin());
  while (values.size() > 1 && values[values.size() - 2] >= high * (1 - kSlack)) values.pop_back();
  return values;
}

}  // namespace

PlotAxis::PlotAxis(double low, double high, bool log, double from_pixel, double to_pixel)
    : low_(low), high_(high), log_(log), from_pixel_(from_pixel), to_pixel_(to_pixel) {
  log_ ? FitLog() : FitLinear();
}

void PlotAxis::FitLinear() {
  if (high_ - low_ <= std::abs(high_) * kSlack) {
    const double room = high_ == 0 ? 1 : std::abs(high_) / 2;
    low_ -= room;
    high_ += room;
  }
  const double step = StepFor(high_ - low_);
  const auto first = std::llround(std::floor(low_ / step + kSlack));
  const auto last = std::llround(std::ceil(high_ / step - kSlack));
  for (auto i = first; i <= last; ++i) ticks_.push_back(static_cast<double>(i) * step);
  low_ = ticks_.front();
  high_ = ticks_.back();
}

void PlotAxis::FitLog() {
  if (high_ <= low_ * (1 + kSlack)) {
    low_ /= 2;
    high_ *= 2;
  }
  constexpr double kFewDecades = 2.5;
  const bool few = std::log10(high_ / low_) < kFewDecades;
  ticks_ = RoundValues(low_, high_);
  low_ = ticks_.front();
  high_ = ticks_.back();
  if (few) return;
  std::erase_if(ticks_, [](double tick) {
    const double exponent = std::log10(tick);
    return std::abs(exponent - std::round(exponent)) > kSlack;
  });
}

double PlotAxis::At(double value) const {
  const double share =
      log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return from_pixel_ + share * (to_pixel_ - from_pixel_);
}

std::vector<double> PlotAxis::MinorTicks() const {
  std::vector<double> minor;
  if (!log_) return minor;
  const int first = static_cast<int>(std::floor(std::log10(low_) + kSlack));
  for (int exponent = first; std::pow(10, exponent) < high_; ++exponent) {
    for (int multiple = 2; multiple <= 9; ++multiple) {
      const double value = multiple * std::pow(10, exponent);
      if (value > low_ * (1 + kSlack) && value < high_ * (1 - kSlack)) minor.push_back(value);
    }
  }
  return minor;
}

std::string TickLabel(double value) {
  const double size = std::abs(value);
  if (size < 1e-12) return "0";
  if (size >= 1e6 || size < 1e-4) return absl::StrFormat("%.4g", value);
  const int digits = std::max(0, 3 - static_cast<int>(std::floor(std::log10(size) + kSlack)));
  std::string text = absl::StrFormat("%.*f", digits, value);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace skein::services
