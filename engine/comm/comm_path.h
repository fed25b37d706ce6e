// The ways that bytes take between the ranks of a group, and which of them a group takes. Decided
// from what the members' addresses tell of them (member_address.h), so that all ranks decide alike
// without a word between them.
//
//  - ipc: from GPU to GPU of one node over CUDA IPC, several ranks on one GPU too.
//  - nccl: each rank has a GPU of its own; any nodes.
//  - host: through the host's memory, over UCX. Always possible; the only one of ranks without
//  GPUs.
//
// In this order: the first that is possible for all members is taken.
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

// What a member's address tells of it.
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

// INVALID_ARGUMENT names a rank: members with and without GPUs, members that want different paths,
// a path that one wants and another cannot take.
absl::StatusOr<PathChoice> ChoosePath(std::span<const CommMember> members);

}  // namespace skein::engine
