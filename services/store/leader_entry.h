// What an election keeps in the store: two entries below ElectionPrefix(cell).
//   leader      "endpoint=HOST:PORT incarnation=HEX generation=N", with the leader's lease
//   generation  "N", the highest that a leader had; no lease
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/election/election_core.h"
#include "services/store/cluster_store.h"
#include "services/store/election.h"

namespace skein::services {

// INVALID_ARGUMENT: not a name of letters, digits, '-', '_' and '.'.
absl::Status CheckCellName(const std::string& cell);

std::string ElectionPrefix(const std::string& cell);
std::string LeaderKey(const std::string& cell);
std::string GenerationKey(const std::string& cell);

std::string WriteLeader(const CellLeader& leader);
std::optional<CellLeader> ReadLeader(const std::string& text);

struct ElectionEntries {
  scheduler::ElectionView view;
  std::optional<CellLeader> leader;  // nullopt: none, or its entry is in another format
};

// UNAVAILABLE names an entry whose generation is no number, or has reached its limit: nobody may
// lead then, because a generation must never be used twice.
absl::StatusOr<ElectionEntries> ReadElection(const std::string& cell,
                                             const StoreSnapshot& snapshot);

}  // namespace skein::services
