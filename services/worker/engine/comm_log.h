// Logs the paths of communicators: each path of a group size at its first bytes, then each time the
// bytes have grown eightfold.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/comm/paths/comm_ledger.h"

namespace skein::services {

// One thread.
class CommLog {
 public:
  // Of `totals`, those that are due.
  std::vector<engine::CommTotals> Due(const std::vector<engine::CommTotals>& totals);

  // Logs them.
  void Log(const std::vector<engine::CommTotals>& totals);

 private:
  std::map<std::pair<int, engine::CommPath>, uint64_t> said_bytes_;
};

}  // namespace skein::services
