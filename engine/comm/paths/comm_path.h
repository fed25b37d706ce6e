// The paths that bytes can take between the ranks of a group, and the choice of one for a group. It
// is made from the members' addresses alone (member_address.h), so all ranks choose alike without
// exchanging a message.
//
//   - ipc: from GPU to GPU of one node over CUDA IPC; several ranks may share a GPU.
//   - nccl: each rank has a GPU of its own; any nodes.
//   - host: through the host's memory, over UCX. Always possible; the only path for ranks without
//     GPUs.
//
// The first of these, in this order, that is possible for all members is used.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

enum class CommPath { kIpc, kNccl, kHost };

std::string_view NameOf(CommPath path);  // "ipc", "nccl", "host"
std::optional<CommPath> CommPathOf(std::string_view name);

// What a member's address says about it.
struct CommMember {
  std::string gpu;    // where its buffers lie: the GPU's UUID; "": the host's memory
  std::string realm;  // those of one realm may open one another's memory by CUDA IPC; "": none may
  std::vector<std::string> reaches;  // UUIDs of GPUs beside its own whose memory its GPU can read
  int nccl_version = 0;              // as ncclGetVersion says; 0: NCCL is not there
  std::optional<CommPath> wants;     // groups with this member take that path or none
};

struct PathChoice {
  CommPath path = CommPath::kHost;
  bool wanted = false;  // by a member: nothing stands in for it
  std::string why_not;  // why it is none of those before it; "" for the first
};

// INVALID_ARGUMENT names a rank: members with and without GPUs, members that demand different
// paths, or a path that one member demands and another does not support.
absl::StatusOr<PathChoice> ChoosePath(std::span<const CommMember> members);

}  // namespace skein::engine
