#include "services/store/leader_entry.h"

#include <cctype>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "scheduler/base/ids.h"

namespace skein::services {

absl::Status CheckCellName(const std::string& cell) {
  bool good = !cell.empty();
  for (const char c : cell) {
    good = good &&
           (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a cell's name consists of letters, digits, '-', '_' and '.'; this one does not: '", cell,
      "'"));
}

std::string ElectionPrefix(const std::string& cell) {
  return absl::StrCat("skein/", cell, "/election/");
}
std::string LeaderKey(const std::string& cell) { return ElectionPrefix(cell) + "leader"; }
std::string GenerationKey(const std::string& cell) { return ElectionPrefix(cell) + "generation"; }

std::string WriteLeader(const CellLeader& leader) {
  return absl::StrCat("endpoint=", leader.endpoint, " incarnation=", absl::Hex(leader.incarnation),
                      " generation=", leader.generation);
}

std::optional<CellLeader> ReadLeader(const std::string& text) {
  CellLeader leader;
  bool incarnation = false;
  bool generation = false;
  // A later version may add fields.
  for (absl::string_view field : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&field, "endpoint=")) {
      leader.endpoint = std::string(field);
    } else if (absl::ConsumePrefix(&field, "incarnation=")) {
      incarnation = absl::SimpleHexAtoi(field, &leader.incarnation);
    } else if (absl::ConsumePrefix(&field, "generation=")) {
      generation = absl::SimpleAtoi(field, &leader.generation);
    }
  }
  if (leader.endpoint.empty() || !incarnation || !generation) return std::nullopt;
  return leader;
}

absl::StatusOr<ElectionEntries> ReadElection(const std::string& cell,
                                             const StoreSnapshot& snapshot) {
  ElectionEntries found;
  found.view.revision = snapshot.revision;
  for (const StoreEntry& entry : snapshot.entries) {
    if (entry.key == LeaderKey(cell)) {
      found.view.leader_revision = entry.revision;
      found.leader = ReadLeader(entry.value);
    } else if (entry.key == GenerationKey(cell)) {
      found.view.generation_revision = entry.revision;
      if (!absl::SimpleAtoi(entry.value, &found.view.generation)) {
        return absl::UnavailableError(
            absl::StrCat("the store's entry ", entry.key, " is no number: '", entry.value, "'"));
      }
      if (found.view.generation >= scheduler::kGenerationMax - 1) {
        return absl::UnavailableError(absl::StrCat("the store's entry ", entry.key, " is ",
                                                   entry.value, ", and generations end at ",
                                                   scheduler::kGenerationMax - 1));
      }
    }
  }
  return found;
}

}  // namespace skein::services
