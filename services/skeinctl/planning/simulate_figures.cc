#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/vocabulary/check.h"
#include "services/skeinctl/planning/simulate.h"
#include "services/skeinctl/planning/svg_plot.h"

namespace skein::services {
namespace {

using R = scheduler::SimulationResult;
using Field = double R::*;

constexpr size_t kCurvePoints = 400;  // points of a distribution's curve, approximately

double Largest(const std::vector<SimulationRow>& rows, std::initializer_list<Field> fields) {
  double largest = 0;
  for (const SimulationRow& row : rows) {
    for (const Field field : fields) largest = std::max(largest, row.result.*field);
  }
  return largest;
}

// One series per policy, in order of first appearance.
std::vector<PlotSeries> OverRate(const std::vector<SimulationRow>& rows, Field field,
                                 double scale) {
  std::vector<PlotSeries> series;
  for (const SimulationRow& row : rows) {
    auto it = std::find_if(series.begin(), series.end(),
                           [&](const PlotSeries& s) { return s.name == row.policy; });
    if (it == series.end()) it = series.insert(series.end(), {row.policy, {}});
    it->points.emplace_back(row.rate, row.result.*field * scale);
  }
  for (PlotSeries& s : series) std::sort(s.points.begin(), s.points.end());
  return series;
}

// A median and a 99th percentile side by side, in one unit.
std::string PercentilesOverRate(const std::vector<SimulationRow>& rows, const char* title,
                                const std::string& subtitle, const char* label, Field p50,
                                Field p99) {
  const TimeUnit unit = FittingTimeUnit(Largest(rows, {p50, p99}));
  const auto plot = [&](const char* name, Field field) {
    return Plot{.title = name,
                .x_label = "offered load, requests/s",
                .y_label = absl::StrCat(label, ", ", unit.name),
                .y_scale = Scale::kLogIfWide,
                .series = OverRate(rows, field, unit.per_second)};
  };
  return FigureSvg(
      {title, subtitle, {plot("median (P50)", p50), plot("99th percentile (P99)", p99)}, 2});
}

// Share of the requests, in percent, whose time is at most x. Non-decreasing.
std::vector<std::pair<double, double>> Cdf(const std::vector<double>& ascending, double scale) {
  SKEIN_CHECK(std::is_sorted(ascending.begin(), ascending.end()));
  std::vector<std::pair<double, double>> points;
  if (ascending.empty()) return points;
  const size_t step = std::max<size_t>(1, ascending.size() / kCurvePoints);
  const auto add = [&](size_t i) {
    points.emplace_back(ascending[i] * scale,
                        100 * static_cast<double>(i + 1) / static_cast<double>(ascending.size()));
  };
  for (size_t i = 0; i + 1 < ascending.size(); i += step) add(i);
  add(ascending.size() - 1);
  return points;
}

}  // namespace

std::string TtftFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle) {
  return PercentilesOverRate(rows, "How long until the first token?", subtitle,
                             "time to first token", &R::ttft_p50_s, &R::ttft_p99_s);
}

std::string TbtFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle) {
  return PercentilesOverRate(rows, "How long between two tokens?", subtitle, "time between tokens",
                             &R::tbt_p50_s, &R::tbt_p99_s);
}

std::string DistributionFigure(const std::vector<SimulationRow>& rows,
                               const std::string& subtitle) {
  double rate = 0;
  for (const SimulationRow& row : rows) rate = std::max(rate, row.rate);
  double largest_s = 0;
  for (const SimulationRow& row : rows) {
    if (row.rate == rate && !row.result.ttft_s.empty()) {
      largest_s = std::max(largest_s, row.result.ttft_s.back());
    }
  }
  const TimeUnit unit = FittingTimeUnit(largest_s);
  Plot plot{.x_label = absl::StrCat("time to first token, ", unit.name),
            .y_label = "requests that have it by then, %",
            .x_scale = Scale::kLogIfWide};
  for (const SimulationRow& row : rows) {
    if (row.rate != rate) continue;
    plot.series.push_back({row.policy, Cdf(row.result.ttft_s, unit.per_second)});
  }
  return FigureSvg({"How is the time to first token spread?",
                    absl::StrFormat("%s, %.3g requests/s", subtitle, rate),
                    {plot},
                    1});
}

std::string ChunkingFigure(const std::vector<SimulationRow>& rows, const std::string& subtitle) {
  PlotSeries p50{"median (P50)", {}};
  PlotSeries p99{"99th percentile (P99)", {}};
  for (const SimulationRow& single : rows) {
    if (single.policy != "single") continue;
    for (const SimulationRow& tetris : rows) {
      if (tetris.policy != "tetris" || tetris.rate != single.rate) continue;
      p50.points.emplace_back(single.rate, single.result.ttft_p50_s / tetris.result.ttft_p50_s);
      p99.points.emplace_back(single.rate, single.result.ttft_p99_s / tetris.result.ttft_p99_s);
    }
  }
  if (p50.points.empty()) return "";
  for (PlotSeries* series : {&p50, &p99}) std::sort(series->points.begin(), series->points.end());
  Plot plot{.x_label = "offered load, requests/s",
            .y_label = "time to first token, single over tetris",
            .y_scale = Scale::kLinear,
            .y_reference = 1,
            .series = {std::move(p50), std::move(p99)}};
  return FigureSvg({"How much slower is one chunk a prompt?", subtitle, {plot}, 1});
}

}  // namespace skein::services
