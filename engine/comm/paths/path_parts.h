// What PathFabric's sources share. Internal to this folder.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/paths/path_fabric.h"
#include "engine/comm/paths/tried_communicator.h"

namespace skein::engine {

// Why a group left the path that it tried: written by its trial's thread.
class PathFabric::Refusal {
 public:
  void Put(std::string why) {
    const std::lock_guard lock(mutex_);
    why_ = std::move(why);
  }
  std::string Get() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  std::mutex mutex_;
  std::string why_;
};

struct PathFabric::Members {
  std::vector<std::string> addresses;  // by rank, as all below
  std::vector<CommMember> all;
  std::vector<std::string> host;
  int rank = 0;
};

// A group that tries a path.
struct PathFabric::Tried {
  std::shared_ptr<Refusal> refusal;
  std::unique_ptr<TriedCommunicator> group;
};

}  // namespace skein::engine
