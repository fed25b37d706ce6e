// The status of a cluster as text and JSON. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "nlohmann/json.hpp"
#include "proto/orchestrator.pb.h"
#include "services/orchestrator_link/state_names.h"
#include "services/skeinctl/cluster/health.h"
#include "services/skeinctl/cluster/local_cluster.h"

namespace skein::services {

// Process names from deploy/local/up: "decode-1".
class ProcessNames {
 public:
  ProcessNames() = default;
  // `host`: this machine's name; processes on other hosts have no name.
  ProcessNames(const LocalCluster& cluster, std::string host);
  // Names from the environment's state file, if it describes this orchestrator's cluster.
  static ProcessNames Of(const std::string& orchestrator, const Environment& environment);
  std::string Find(const std::string& host, int64_t pid) const;  // "-": unknown

 private:
  std::string host_;
  std::map<int64_t, std::string> by_pid_;
};

enum class SortBy { kRole, kLoad, kKv, kTokens };

// Changes since an earlier snapshot; negative: unknown.
struct Rates {
  double requests_per_s = -1;
  double failed_per_s = -1;
};

struct TableStyle {
  SortBy sort = SortBy::kRole;
  Rates rates;
  size_t width = 0;  // characters per line; less important columns are dropped. 0: no limit
};

std::string StatusTable(const v1::StatusResponse& status, const ProcessNames& names = {},
                        const TableStyle& style = {});
nlohmann::ordered_json StatusJson(const v1::StatusResponse& status, const ProcessNames& names = {});
// One line: "2026-11-22T18:00:00Z healthy routers 1/1 prefill 2/2 decode 2/2 running 3 ...".
std::string StatusLine(const v1::StatusResponse& status, const std::string& time);

}  // namespace skein::services
