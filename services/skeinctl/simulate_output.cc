#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/skeinctl/simulate.h"
#include "services/skeinctl/svg_plot.h"

namespace skein::services {
namespace {

using scheduler::SimulationResult;

struct Column {
  const char* name;     // of JSON and CSV
  const char* heading;  // of the table; null: not there
  const char* format;   // of the table
  double (*value)(const SimulationResult&);
};

using R = SimulationResult;
constexpr std::array<Column, 13> kColumns = {{
    {"ttft_p50_s", "TTFT P50", "%.3f", [](const R& r) { return r.ttft_p50_s; }},
    {"ttft_p99_s", "P99", "%.3f", [](const R& r) { return r.ttft_p99_s; }},
    {"tbt_p50_s", "TBT P50", "%.4f", [](const R& r) { return r.tbt_p50_s; }},
    {"tbt_p99_s", "P99", "%.4f", [](const R& r) { return r.tbt_p99_s; }},
    {"throughput_tokens_per_s", "TOK/S", "%.0f",
     [](const R& r) { return r.throughput_tokens_per_s; }},
    {"utilisation", "BUSY", "%.3f", [](const R& r) { return r.utilisation; }},
    {"queue_mean_s", "QUEUE", "%.3f", [](const R& r) { return r.queue_mean_s; }},
    {"idle_s", "IDLE", "%.1f", [](const R& r) { return r.idle_s; }},
    {"ttft_mean_s", nullptr, "%.3f", [](const R& r) { return r.ttft_mean_s; }},
    {"decode_utilisation", nullptr, "%.3f", [](const R& r) { return r.decode_utilisation; }},
    {"requests_per_s", nullptr, "%.3f", [](const R& r) { return r.requests_per_s; }},
    {"requests", nullptr, "%.0f", [](const R& r) { return static_cast<double>(r.requests); }},
    {"chunks", "CHUNKS", "%.0f", [](const R& r) { return static_cast<double>(r.chunks); }},
}};

std::string Number(double value) { return absl::StrFormat("%.9g", value); }

std::string Cell(const Column& column, const SimulationResult& result) {
  const auto format = absl::ParsedFormat<'f'>::New(column.format);
  return absl::StrFormat(*format, column.value(result));
}

// One series a policy, in the order in which they first appear.
template <typename Y>
std::vector<PlotSeries> OverRate(const std::vector<SimulationRow>& rows, const Y& y) {
  std::vector<PlotSeries> series;
  for (const SimulationRow& row : rows) {
    auto it = std::find_if(series.begin(), series.end(),
                           [&](const PlotSeries& s) { return s.name == row.policy; });
    if (it == series.end()) it = series.insert(series.end(), {row.policy, {}});
    it->points.emplace_back(row.rate, y(row.result));
  }
  for (PlotSeries& s : series) std::sort(s.points.begin(), s.points.end());
  return series;
}

}  // namespace

std::string SimulationTable(const std::vector<SimulationRow>& rows) {
  std::string text = absl::StrFormat("%-9s %8s", "POLICY", "RATE");
  for (const Column& column : kColumns) {
    if (column.heading != nullptr) absl::StrAppendFormat(&text, " %9s", column.heading);
  }
  text += "\n";
  for (const SimulationRow& row : rows) {
    absl::StrAppendFormat(&text, "%-9s %8.3f", row.policy, row.rate);
    for (const Column& column : kColumns) {
      if (column.heading != nullptr) {
        absl::StrAppendFormat(&text, " %9s", Cell(column, row.result));
      }
    }
    text += "\n";
  }
  return text;
}

std::string SimulationJsonLines(const std::vector<SimulationRow>& rows) {
  std::string text;
  for (const SimulationRow& row : rows) {
    absl::StrAppend(&text, "{\"policy\": \"", row.policy, "\", \"rate\": ", Number(row.rate),
                    ", \"seed\": ", row.seed);
    for (const Column& column : kColumns) {
      absl::StrAppend(&text, ", \"", column.name, "\": ", Number(column.value(row.result)));
    }
    text += "}\n";
  }
  return text;
}

std::string SimulationCsv(const std::vector<SimulationRow>& rows) {
  std::string text = "policy,rate";
  for (const Column& column : kColumns) absl::StrAppend(&text, ",", column.name);
  text += "\n";
  for (const SimulationRow& row : rows) {
    absl::StrAppend(&text, row.policy, ",", Number(row.rate));
    for (const Column& column : kColumns) {
      absl::StrAppend(&text, ",", Number(column.value(row.result)));
    }
    text += "\n";
  }
  return text;
}

std::string ChunksCsv(const std::vector<SimulationRow>& rows) {
  std::string text =
      "policy,rate,seed,request,arrival_s,prompt_tokens,chunk_tokens,start_s,end_s,instances\n";
  for (const SimulationRow& row : rows) {
    for (const auto& [number, request, chunk] : row.chunks) {
      absl::StrAppend(&text, row.policy, ",", Number(row.rate), ",", row.seed, ",", number, ",");
      absl::StrAppendFormat(&text, "%.6f,%d,%d,%.6f,%.6f,", request.arrival_s,
                            request.prompt_tokens, chunk.tokens, chunk.start_s, chunk.end_s);
      absl::StrAppend(&text, absl::StrJoin(chunk.instances, " "), "\n");
    }
  }
  return text;
}

std::string LatencyFigure(const std::vector<SimulationRow>& rows) {
  const auto plot = [&](const char* title, const char* label, double R::*field) {
    return Plot{title, "requests/s", label, true,
                OverRate(rows, [field](const R& result) { return result.*field; })};
  };
  return PlotsSvg(
      {plot("TTFT P50", "seconds", &R::ttft_p50_s), plot("TTFT P99", "seconds", &R::ttft_p99_s),
       plot("TBT P50", "seconds", &R::tbt_p50_s), plot("TBT P99", "seconds", &R::tbt_p99_s)},
      2);
}

std::string DistributionFigure(const std::vector<SimulationRow>& rows) {
  Plot plot{"", "TTFT, seconds", "share of requests", false, {}};
  double rate = 0;
  for (const SimulationRow& row : rows) rate = std::max(rate, row.rate);
  plot.title = absl::StrFormat("TTFT at %.4g requests/s", rate);
  double limit_s = 0;  // a policy that is overloaded there must not squeeze the others
  for (const SimulationRow& row : rows) {
    if (row.rate != rate) continue;
    const double p99_s = row.result.ttft_p99_s;
    limit_s = limit_s == 0 ? 4 * p99_s : std::min(limit_s, 4 * p99_s);
  }
  for (const SimulationRow& row : rows) {
    if (row.rate != rate) continue;
    PlotSeries series{row.policy, {}};
    const std::vector<double>& ttft_s = row.result.ttft_s;
    const size_t step = std::max<size_t>(1, ttft_s.size() / 400);
    for (size_t i = 0; i < ttft_s.size() && ttft_s[i] <= limit_s; i += step) {
      series.points.emplace_back(ttft_s[i],
                                 static_cast<double>(i + 1) / static_cast<double>(ttft_s.size()));
    }
    plot.series.push_back(std::move(series));
  }
  return PlotsSvg({plot}, 1);
}

std::string ChunkingFigure(const std::vector<SimulationRow>& rows) {
  Plot plot{"Slowdown without chunks", "requests/s", "single / tetris", false, {}};
  PlotSeries p50{"P50 TTFT", {}};
  PlotSeries p99{"P99 TTFT", {}};
  for (const SimulationRow& single : rows) {
    if (single.policy != "single") continue;
    for (const SimulationRow& tetris : rows) {
      if (tetris.policy != "tetris" || tetris.rate != single.rate) continue;
      p50.points.emplace_back(single.rate, single.result.ttft_p50_s / tetris.result.ttft_p50_s);
      p99.points.emplace_back(single.rate, single.result.ttft_p99_s / tetris.result.ttft_p99_s);
    }
  }
  if (p50.points.empty()) return "";
  plot.series = {std::move(p50), std::move(p99)};
  return PlotsSvg({plot}, 1);
}

}  // namespace skein::services
