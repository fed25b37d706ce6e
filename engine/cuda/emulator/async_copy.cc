#include "engine/cuda/emulator/async_copy.h"

#include <cstring>
#include <utility>

#include "engine/cuda/emulator/hopper.h"

namespace skein::engine::simt {
namespace {

void Finish(const PendingCopy& copy) {
  std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
  if (copy.source_bytes > 0) {
    std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.source_bytes));
  }
  NoteSharedWrite(copy.to, static_cast<size_t>(copy.bytes), copy.site);
}

}  // namespace

void AsyncCopy(void* to_shared, const void* from, int bytes, int source_bytes, const Site& site) {
  const auto misaligned = [&](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0;
  };
  if (misaligned(to_shared) || misaligned(from)) KernelFailure(site, "an address is not aligned");
  if (source_bytes < 0 || source_bytes > bytes) KernelFailure(site, "source_bytes is out of range");
  CheckShared(to_shared, static_cast<size_t>(bytes), site);
  std::memset(to_shared, 0xff, static_cast<size_t>(bytes));
  NoteSharedWrite(to_shared, static_cast<size_t>(bytes), site);
  ThisCopies().open.push_back({to_shared, from, bytes, source_bytes, site});
}

void CommitAsyncCopies() {
  CopyQueue& copies = ThisCopies();
  copies.groups.push_back(std::exchange(copies.open, {}));
}

void WaitForAsyncCopies(int pending_groups) {
  auto& groups = ThisCopies().groups;
  while (groups.size() > static_cast<size_t>(pending_groups)) {
    for (const PendingCopy& copy : groups.front()) Finish(copy);
    groups.erase(groups.begin());
  }
}

void RequireNoCopiesPending(const CopyQueue& copies) {
  const auto require_none = [](const std::vector<PendingCopy>& group) {
    if (!group.empty()) KernelFailure(group.front().site, "ends without waiting for this copy");
  };
  for (const auto& group : copies.groups) require_none(group);
  require_none(copies.open);
}

}  // namespace skein::engine::simt
