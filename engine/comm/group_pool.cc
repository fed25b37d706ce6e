#include "engine/comm/group_pool.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::engine {

absl::StatusOr<std::unique_ptr<GroupPool>> GroupPool::Make(Fabric* fabric, uint64_t id,
                                                           std::span<const std::string> addresses,
                                                           int index) {
  const int count = static_cast<int>(addresses.size());
  if (index < 0 || index >= count) {
    return absl::InvalidArgumentError(absl::StrCat("index ", index, " of ", count, " addresses"));
  }
  std::unique_ptr<GroupPool> pool(new GroupPool(index));
  for (int size = 1; size <= count; size *= 2) {
    const int first = index / size * size;
    if (first + size > count) continue;
    auto group = fabric->MakeGroup({id, static_cast<uint64_t>(size)},
                                   addresses.subspan(first, size), index - first);
    if (!group.ok()) return group.status();
    pool->groups_[size] = *std::move(group);
  }
  return pool;
}

// From small to large at every instance, so nobody waits in a ring.
absl::Status GroupPool::Connect(CommDeadline deadline) {
  for (const auto& [size, group] : groups_) {
    auto status = group->AllReduce(nullptr, 0, DType::kF32, deadline);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Communicator*> GroupPool::Take(std::span<const int> members) {
  const int size = static_cast<int>(members.size());
  const auto found = groups_.find(size);
  const int first = size == 0 ? 0 : index_ / size * size;
  bool matches = found != groups_.end();
  for (int i = 0; matches && i < size; ++i) matches = members[i] == first + i;
  if (matches) return found->second.get();
  return absl::InvalidArgumentError(absl::StrCat("no group {", absl::StrJoin(members, ", "),
                                                 "} at instance ", index_,
                                                 ": not aligned neighbours that it belongs to"));
}

}  // namespace skein::engine
