// A thread's cp.async copies that are on their way. Internal to the emulator; kernels call grid.h.
#pragma once

#include <vector>

#include "engine/cuda/emulator/grid.h"

namespace skein::engine::simt {

struct PendingCopy {
  void* to;
  const void* from;
  int bytes;
  int source_bytes;
  Site site;
};

struct CopyQueue {
  std::vector<PendingCopy> open;
  std::vector<std::vector<PendingCopy>> groups;  // oldest first
};

// The copies of the thread that runs.
CopyQueue& ThisCopies();
// At a thread's end.
void RequireNoCopiesPending(const CopyQueue& copies);

}  // namespace skein::engine::simt
