// The communicators that a rank needs for every mode its group may run in, made once: changing the
// mode between two steps creates nothing.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/comm/fabric.h"
#include "engine/parallel/group_part.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

class GroupComms {
 public:
  // This process's end, rank r being at addresses[r], of the group and of the SP and TP groups of
  // `modes` (addresses.size() ranks each; the same modes on every rank). All share `id`: their
  // members differ. Waits for nobody. Errors as Fabric::MakeGroup's; INVALID_ARGUMENT names a mode
  // of another number of ranks.
  static absl::StatusOr<GroupComms> Make(Fabric* fabric, GroupId id,
                                         std::span<const std::string> addresses, int rank,
                                         std::span<const GroupMode> modes);

  // REQUIRES: `mode` is one of the modes.
  GroupPart Part(GroupMode mode, CommDeadline deadline) const;

  // Breaks all of them.
  void Abort(const absl::Status& reason);

 private:
  struct Pair {
    GroupMode mode;
    std::unique_ptr<Communicator> sp, tp;  // null where `all_` or nothing serves
  };

  std::unique_ptr<Communicator> all_;
  std::vector<Pair> pairs_;
};

}  // namespace skein::engine
