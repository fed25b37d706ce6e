// Runs the ranks of a group as threads, over any kind of fabric: for conformance and other tests.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

using FabricFactory = std::function<std::unique_ptr<Fabric>()>;

// A deadline that no healthy call meets.
CommDeadline Later();

class TestingRanks {
 public:
  TestingRanks(const FabricFactory& make_fabric, int ranks);

  int Ranks() const { return static_cast<int>(fabrics_.size()); }
  Fabric* fabric(int rank) { return fabrics_[rank].get(); }
  std::vector<std::string> Addresses(std::span<const int> members) const;

  // A new group of these ranks (members[i] is its rank i), one communicator each, in that order.
  std::vector<std::unique_ptr<Communicator>> Group(std::span<const int> members);
  std::vector<std::unique_ptr<Communicator>> GroupOfAll();

  // body(communicator) in a thread per member; each one's answer.
  static std::vector<absl::Status> Run(std::span<const std::unique_ptr<Communicator>> group,
                                       const std::function<absl::Status(Communicator*)>& body);

 private:
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  uint64_t next_group_ = 1;
};

}  // namespace skein::engine
