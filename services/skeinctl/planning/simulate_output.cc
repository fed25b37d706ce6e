#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/skeinctl/planning/simulate.h"
#include "services/skeinctl/planning/svg_plot.h"

namespace skein::services {
namespace {

using R = scheduler::SimulationResult;

// The kind of a column's values. Times use the unit that fits; a median and 99th percentile of the
// same kind share it.
enum class Kind { kTtft, kTbt, kTpot, kWait, kTime, kShare, kTokensPerSecond, kCount };

struct Column {
  const char* name;     // of JSON and CSV
  const char* heading;  // of the table; null: not shown
  Kind kind;
  double (*value)(const R&);
};

constexpr std::array<Column, 13> kColumns = {{
    {"ttft_p50_s", "TTFT P50", Kind::kTtft, [](const R& r) { return r.ttft_p50_s; }},
    {"ttft_p99_s", "TTFT P99", Kind::kTtft, [](const R& r) { return r.ttft_p99_s; }},
    {"tbt_p50_s", "TBT P50", Kind::kTbt, [](const R& r) { return r.tbt_p50_s; }},
    {"tbt_p99_s", "TBT P99", Kind::kTbt, [](const R& r) { return r.tbt_p99_s; }},
    {"throughput_tokens_per_s", "THROUGHPUT", Kind::kTokensPerSecond,
     [](const R& r) { return r.throughput_tokens_per_s; }},
    {"utilisation", "BUSY", Kind::kShare, [](const R& r) { return r.utilisation; }},
    {"queue_mean_s", "QUEUE", Kind::kTime, [](const R& r) { return r.queue_mean_s; }},
    {"idle_s", "IDLE", Kind::kTime, [](const R& r) { return r.idle_s; }},
    {"ttft_mean_s", nullptr, Kind::kTime, [](const R& r) { return r.ttft_mean_s; }},
    {"decode_utilisation", nullptr, Kind::kShare, [](const R& r) { return r.decode_utilisation; }},
    {"requests_per_s", nullptr, Kind::kCount, [](const R& r) { return r.requests_per_s; }},
    {"requests", nullptr, Kind::kCount, [](const R& r) { return static_cast<double>(r.requests); }},
    {"chunks", "CHUNKS", Kind::kCount, [](const R& r) { return static_cast<double>(r.chunks); }},
}};

// Of rows with a formation.
constexpr std::array<Column, 12> kDecodeColumns = {{
    {"tpot_p50_s", "TPOT P50", Kind::kTpot, [](const R& r) { return r.decode->tpot_p50_s; }},
    {"tpot_p90_s", "TPOT P90", Kind::kTpot, [](const R& r) { return r.decode->tpot_p90_s; }},
    {"tpot_p99_s", "TPOT P99", Kind::kTpot, [](const R& r) { return r.decode->tpot_p99_s; }},
    {"decode_queue_p50_s", "WAIT P50", Kind::kWait,
     [](const R& r) { return r.decode->queue_p50_s; }},
    {"decode_queue_p90_s", nullptr, Kind::kWait, [](const R& r) { return r.decode->queue_p90_s; }},
    {"decode_queue_p99_s", "WAIT P99", Kind::kWait,
     [](const R& r) { return r.decode->queue_p99_s; }},
    {"decode_peak_tokens_per_s", "PEAK", Kind::kTokensPerSecond,
     [](const R& r) { return r.decode->peak_tokens_per_s; }},
    {"own_steps", "OWN", Kind::kShare, [](const R& r) { return r.decode->step_share[0]; }},
    {"tp_steps", "TP", Kind::kShare, [](const R& r) { return r.decode->step_share[1]; }},
    {"sp_steps", "SP", Kind::kShare, [](const R& r) { return r.decode->step_share[2]; }},
    {"sp_tp_steps", "SP x TP", Kind::kShare, [](const R& r) { return r.decode->step_share[3]; }},
    {"switches", "SWITCHES", Kind::kCount,
     [](const R& r) {
       const scheduler::SwitchCounts& counts = r.decode->switches;
       return static_cast<double>(counts.binds + counts.releases + counts.others);
     }},
}};

constexpr char kDecodeLegend[] =
    "TPOT        time per token after the first: median, 90th and 99th percentile\n"
    "WAIT        from the end of prefill until the first decode step with the request begins\n"
    "PEAK        the most tokens of decode steps in any 5 s, per second\n"
    "OWN TP SP   shares of the decode steps: of instances alone, of bound ones in TP and in SP\n"
    "SP x TP     likewise, of bound ones in both\n"
    "SWITCHES    binds and releases\n";

constexpr char kLegend[] =
    "\n"
    "RATE        offered requests per second\n"
    "TTFT        from a request's arrival to its first token: median and 99th percentile\n"
    "TBT         between two tokens of a request: median and 99th percentile\n"
    "THROUGHPUT  prompt and output tokens per second, first arrival to last token\n"
    "BUSY        share of the time, first arrival to last prefill, that prefill instances compute\n"
    "QUEUE       mean wait of a request from its arrival to the start of its first chunk\n"
    "IDLE        the part of that time in which a prefill instance computes nothing (mean)\n"
    "CHUNKS      number of chunks of the prompts\n";

std::string Number(double value) { return absl::StrFormat("%.9g", value); }

double Largest(const std::vector<SimulationRow>& rows, double (*value)(const R&)) {
  double largest = 0;
  for (const SimulationRow& row : rows) largest = std::max(largest, value(row.result));
  return largest;
}

// The unit of a column's cells, and the factor that converts a value to it.
TimeUnit UnitOf(const Column& column, const std::vector<SimulationRow>& rows) {
  switch (column.kind) {
    case Kind::kTtft:
      return FittingTimeUnit(Largest(rows, [](const R& r) { return r.ttft_p99_s; }));
    case Kind::kTbt:
      return FittingTimeUnit(Largest(rows, [](const R& r) { return r.tbt_p99_s; }));
    case Kind::kTpot:
      return FittingTimeUnit(Largest(rows, [](const R& r) { return r.decode->tpot_p99_s; }));
    case Kind::kWait:
      return FittingTimeUnit(Largest(rows, [](const R& r) { return r.decode->queue_p99_s; }));
    case Kind::kTime:
      return FittingTimeUnit(Largest(rows, column.value));
    case Kind::kShare:
      return {"%", 100};
    case Kind::kTokensPerSecond:
      return {"tokens/s", 1};
    default:
      return {"", 1};
  }
}

// Three significant digits, no exponent.
std::string Cell(double value) {
  if (value <= 0) return "0";
  const int digits = std::clamp(2 - static_cast<int>(std::floor(std::log10(value))), 0, 6);
  return absl::StrFormat("%.*f", digits, value);
}

// µ is two bytes and one column.
std::string Padded(const std::string& text, size_t width) {
  const size_t places =
      text.size() - static_cast<size_t>(std::count(text.begin(), text.end(), '\xc2'));
  return std::string(width - std::min(width, places), ' ') + text;
}

constexpr size_t kCellWidth = 11;
constexpr size_t kFormationWidth = 13;

// All rows have a formation, or none has.
bool HasFormations(const std::vector<SimulationRow>& rows) {
  return !rows.empty() && rows.front().result.decode.has_value();
}

std::vector<Column> ColumnsOf(const std::vector<SimulationRow>& rows) {
  std::vector<Column> columns(kColumns.begin(), kColumns.end());
  if (HasFormations(rows)) {
    columns.insert(columns.end(), kDecodeColumns.begin(), kDecodeColumns.end());
  }
  return columns;
}

// "1 x 1: 20, 2 x 4: 5", and so on.
std::string ShapesText(const R& result) {
  std::vector<std::string> shapes;
  for (const auto& [shape, chunks] : result.shapes) {
    shapes.push_back(absl::StrCat(shape.first, " x ", shape.second, ": ", chunks));
  }
  return absl::StrJoin(shapes, ", ");
}

bool HasTensorGroups(const std::vector<SimulationRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const SimulationRow& row) {
    const auto& shapes = row.result.shapes;
    return std::any_of(shapes.begin(), shapes.end(),
                       [](const auto& shape) { return shape.first.second > 1; });
  });
}

}  // namespace

std::string SimulationTable(const std::vector<SimulationRow>& rows) {
  size_t longest = 9;
  for (const SimulationRow& row : rows) longest = std::max(longest, row.policy.size());
  const int width = static_cast<int>(longest);
  std::string text = absl::StrFormat("%-*s %8s", width, "POLICY", "RATE");
  std::string units = absl::StrFormat("%-*s %8s", width, "", "1/s");
  const std::vector<Column> columns = ColumnsOf(rows);
  const bool formations = HasFormations(rows);
  if (formations) {
    text += Padded("FORMATION", kFormationWidth);
    units += Padded("", kFormationWidth);
  }
  for (const Column& column : columns) {
    if (column.heading == nullptr) continue;
    text += Padded(column.heading, kCellWidth);
    units += Padded(UnitOf(column, rows).name, kCellWidth);
  }
  absl::StrAppend(&text, "\n", units, "\n");
  for (const SimulationRow& row : rows) {
    absl::StrAppendFormat(&text, "%-*s %8s", width, row.policy, Cell(row.rate));
    if (formations) text += Padded(row.formation, kFormationWidth);
    for (const Column& column : columns) {
      if (column.heading == nullptr) continue;
      const double value = column.value(row.result) * UnitOf(column, rows).per_second;
      text += Padded(column.kind == Kind::kCount ? absl::StrFormat("%.0f", value) : Cell(value),
                     kCellWidth);
    }
    text += "\n";
  }
  absl::StrAppend(&text, kLegend, formations ? kDecodeLegend : "");
  if (!HasTensorGroups(rows)) return text;
  text += "\nCHUNKS by SP x TP of their instances\n";
  for (const SimulationRow& row : rows) {
    absl::StrAppendFormat(&text, "%-*s %8s  %s\n", width, row.policy, Cell(row.rate),
                          ShapesText(row.result));
  }
  return text;
}

std::string SimulationJsonLines(const std::vector<SimulationRow>& rows) {
  std::string text;
  for (const SimulationRow& row : rows) {
    absl::StrAppend(&text, "{\"policy\": \"", row.policy, "\", \"rate\": ", Number(row.rate),
                    ", \"seed\": ", row.seed);
    if (!row.formation.empty()) {
      absl::StrAppend(&text, ", \"formation\": \"", row.formation, "\"");
    }
    for (const Column& column : ColumnsOf(rows)) {
      absl::StrAppend(&text, ", \"", column.name, "\": ", Number(column.value(row.result)));
    }
    std::vector<std::string> shapes;
    for (const auto& [shape, chunks] : row.result.shapes) {
      shapes.push_back(absl::StrCat("\"", shape.first, "x", shape.second, "\": ", chunks));
    }
    absl::StrAppend(&text, ", \"chunks_by_sp_tp\": {", absl::StrJoin(shapes, ", "), "}}\n");
  }
  return text;
}

std::string SimulationCsv(const std::vector<SimulationRow>& rows) {
  const std::vector<Column> columns = ColumnsOf(rows);
  const bool formations = HasFormations(rows);
  std::string text = formations ? "policy,rate,formation" : "policy,rate";
  for (const Column& column : columns) absl::StrAppend(&text, ",", column.name);
  text += "\n";
  for (const SimulationRow& row : rows) {
    absl::StrAppend(&text, row.policy, ",", Number(row.rate));
    if (formations) absl::StrAppend(&text, ",", row.formation);
    for (const Column& column : columns) {
      absl::StrAppend(&text, ",", Number(column.value(row.result)));
    }
    text += "\n";
  }
  return text;
}

std::string ChunksCsv(const std::vector<SimulationRow>& rows) {
  std::string text =
      "policy,rate,seed,request,arrival_s,prompt_tokens,chunk_tokens,start_s,end_s,instances,"
      "tp\n";
  for (const SimulationRow& row : rows) {
    for (const auto& [number, request, chunk] : row.chunks) {
      absl::StrAppend(&text, row.policy, ",", Number(row.rate), ",", row.seed, ",", number, ",");
      absl::StrAppendFormat(&text, "%.6f,%d,%d,%.6f,%.6f,", request.arrival_s,
                            request.prompt_tokens, chunk.tokens, chunk.start_s, chunk.end_s);
      absl::StrAppend(&text, absl::StrJoin(chunk.instances, " "), ",", chunk.tp, "\n");
    }
  }
  return text;
}

std::string DecodeCsv(const std::vector<SimulationRow>& rows) {
  std::string text =
      "policy,rate,seed,formation,request,first_token_s,decode_start_s,second_token_s,"
      "last_token_s,instance,instances\n";
  const auto seconds = [](scheduler::TimeUs at_us) {
    return at_us == scheduler::kNever
               ? std::string()
               : absl::StrFormat("%.6f", static_cast<double>(at_us) / scheduler::kSecondUs);
  };
  for (const SimulationRow& row : rows) {
    for (size_t r = 0; r < row.result.decoded.size(); ++r) {
      const scheduler::DecodeOutcome& one = row.result.decoded[r];
      absl::StrAppend(&text, row.policy, ",", Number(row.rate), ",", row.seed, ",", row.formation,
                      ",", r, ",");
      absl::StrAppendFormat(&text, "%.6f,", row.result.prefilled[r].end_s);
      absl::StrAppend(&text, seconds(one.started_us), ",", seconds(one.second_us), ",",
                      seconds(one.last_us), ",", one.instance, ",", one.size, "\n");
    }
  }
  return text;
}

}  // namespace skein::services
