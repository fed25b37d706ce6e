#include "services/skeinctl/chaos/fault_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "services/skeinctl/terminal/table.h"

namespace skein::services::chaos {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::vector<std::string>>;

constexpr size_t kErrorsShown = 5;

std::string Seconds(double seconds) {
  return seconds < 0 ? "none" : absl::StrFormat("%.2f", seconds);
}

Cells CellsOf(const std::vector<Row>& rows) {
  Cells cells = {{"fault", "running", "requests", "failed", "wrong", "near ties", "lost", "doubled",
                  "hung", "recovery (s)", "gap p50 (s)", "gap p99 (s)"}};
  for (const Row& row : rows) {
    if (!row.skipped.empty()) continue;
    cells.push_back({row.scenario, absl::StrCat(row.running()), absl::StrCat(row.requests),
                     absl::StrCat(row.failed), absl::StrCat(row.wrong), absl::StrCat(row.near_ties),
                     absl::StrCat(row.lost), absl::StrCat(row.doubled), absl::StrCat(row.hung),
                     Seconds(row.recovery_s()), Seconds(row.GapPercentile(50)),
                     Seconds(row.GapPercentile(99))});
  }
  return cells;
}

std::vector<std::pair<std::string, int64_t>> MostFrequent(const Row& row) {
  std::vector<std::pair<std::string, int64_t>> errors(row.errors.begin(), row.errors.end());
  std::stable_sort(errors.begin(), errors.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (errors.size() > kErrorsShown) errors.resize(kErrorsShown);
  return errors;
}

void Put(const Counts& counts, Json* json) {
  (*json)["requests"] = counts.requests;
  (*json)["failed"] = counts.failed;
  (*json)["excused"] = counts.excused;
  (*json)["wrong"] = counts.wrong;
  (*json)["near_ties"] = counts.near_ties;
  (*json)["lost"] = counts.lost;
  (*json)["doubled"] = counts.doubled;
  (*json)["hung"] = counts.hung;
  (*json)["tokens"] = counts.tokens;
}

// "2 wrong, 1 hung"; empty: nothing to tell.
std::string Told(const Counts& counts) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(absl::StrCat(count, " ", what));
  };
  add(counts.failed, "failed");
  add(counts.wrong, "wrong");
  add(counts.near_ties, "after a near tie");
  add(counts.lost, "lost");
  add(counts.doubled, "doubled");
  add(counts.hung, "hung");
  return absl::StrJoin(parts, ", ");
}

// The requests of all rows by kind, and below it what the rows saw of each kind.
std::string KindsText(const std::vector<Row>& rows) {
  std::map<std::string, int64_t> requests;
  std::string seen;
  for (const Row& row : rows) {
    for (const auto& [kind, counts] : row.kinds) {
      requests[kind] += counts.requests;
      const std::string told = Told(counts);
      if (told.empty()) continue;
      absl::StrAppend(&seen, row.scenario, ": ", kind, ": ", told, " of ", counts.requests, "\n");
    }
  }
  if (requests.empty()) return seen;
  std::vector<std::string> parts;
  parts.reserve(requests.size());
  for (const auto& [kind, count] : requests) parts.push_back(absl::StrCat(count, " ", kind));
  return absl::StrCat("requests by kind: ", absl::StrJoin(parts, ", "), "\n", seen);
}

Json JsonOf(const FaultEffect& effect) {
  Json json;
  json["what"] = effect.mark.what;
  json["at_s"] = effect.mark.at_s;
  json["running"] = effect.running;
  json["stalled"] = effect.stalled;
  json["recovery_s"] = effect.recovery_s < 0 ? Json() : Json(effect.recovery_s);
  return json;
}

Json JsonOf(const Row& row) {
  Json json;
  json["scenario"] = row.scenario;
  json["skipped"] = row.skipped.empty() ? Json() : Json(row.skipped);
  if (!row.skipped.empty()) return json;
  json["good"] = row.good();
  json["clients_may_fail"] = row.clients_may_fail;
  json["running"] = row.running();
  Put(row, &json);
  json["recovery_s"] = row.recovery_s() < 0 ? Json() : Json(row.recovery_s());
  json["gap_p50_s"] = row.GapPercentile(50);
  json["gap_p99_s"] = row.GapPercentile(99);
  json["seconds"] = row.seconds;
  json["faults_that_met_streams"] = row.faults_that_met_streams();
  json["faults"] = Json::array();
  for (const FaultEffect& effect : row.faults) json["faults"].push_back(JsonOf(effect));
  json["errors"] = Json::object();
  for (const auto& [error, count] : row.errors) json["errors"][error] = count;
  json["kinds"] = Json::object();
  for (const auto& [kind, counts] : row.kinds) Put(counts, &json["kinds"][kind]);
  return json;
}

}  // namespace

std::string FaultText(const TableHead& head, const std::vector<Row>& rows) {
  std::string text = absl::StrCat(head.cluster, "; ", head.machine, "\n", head.load, "\n\n",
                                  AlignedTable(CellsOf(rows)));
  if (!head.left_out.empty()) absl::StrAppend(&text, head.left_out, "\n");
  for (const Row& row : rows) {
    if (!row.skipped.empty())
      absl::StrAppend(&text, row.scenario, ": skipped: ", row.skipped, "\n");
  }
  text += KindsText(rows);
  for (const Row& row : rows) {
    for (const auto& [error, count] : MostFrequent(row)) {
      absl::StrAppend(&text, row.scenario, ": ", count, " x ", error, "\n");
    }
  }
  return text;
}

std::string FaultMarkdown(const TableHead& head, const std::vector<Row>& rows) {
  std::string text = absl::StrCat(head.machine, "; ", head.cluster, "; ", head.load, ".\n\n");
  const Cells cells = CellsOf(rows);
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&text, "| ", absl::StrJoin(cells[i], " | "), " |\n");
    if (i > 0) continue;
    text += "|";
    for (size_t column = 0; column < cells[0].size(); ++column) text += "---|";
    text += "\n";
  }
  if (!head.left_out.empty()) absl::StrAppend(&text, "\n", head.left_out, "\n");
  return text;
}

std::string FaultJson(const TableHead& head, const std::vector<Row>& rows) {
  Json json;
  json["version"] = head.version;
  json["machine"] = head.machine;
  json["cluster"] = head.cluster;
  json["load"] = head.load;
  json["stall_s"] = head.stall_s;
  json["left_out"] = head.left_out.empty() ? Json() : Json(head.left_out);
  json["rows"] = Json::array();
  for (const Row& row : rows) json["rows"].push_back(JsonOf(row));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace skein::services::chaos
