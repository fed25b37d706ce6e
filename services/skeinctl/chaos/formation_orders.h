// Orders to the first group of decode instances of a cluster.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/orchestrator.pb.h"

namespace skein::services::chaos {

// The stage of the first switch that is under way; empty: none is. Pure.
std::string SwitchUnderWay(const v1::ListGroupsResponse& groups);

class FormationOrders {
 public:
  // `orchestrator`: as ClusterClient takes it; empty: nothing can be ordered (UNIMPLEMENTED).
  explicit FormationOrders(std::string orchestrator) : orchestrator_(std::move(orchestrator)) {}

  // Block until it is done. NOT_FOUND: there is no group of two decode instances.
  absl::Status Bind() const;     // two of them, and pins it
  absl::Status Release() const;  // and unpins
  // Orders one of the two and calls `seen` with its stage as soon as it is under way, or at once
  // with "ordered"; at most once. Returns when both are done: the order's status.
  absl::Status Switch(bool bind, bool at_once,
                      const std::function<void(const std::string& stage)>& seen) const;

 private:
  absl::Status Change(const std::vector<v1::ChangeFormationRequest::Act>& acts) const;

  const std::string orchestrator_;
};

}  // namespace skein::services::chaos
