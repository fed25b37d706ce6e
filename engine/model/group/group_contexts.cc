#include "engine/model/group/group_contexts.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {
namespace {

constexpr uint64_t kContexts = 0x736b67726f757000u;  // of their ids, with the size

}  // namespace

GroupContexts::GroupContexts(Fabric* fabric, Options options)
    : fabric_(fabric),
      options_(std::move(options)),
      status_(absl::UnavailableError("no groups were made yet")),
      thread_([this] {
        pthread_setname_np(pthread_self(), "groups");
        Loop();
      }) {}

GroupContexts::~GroupContexts() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [size, context] : making_) {
      context->Abort(absl::UnavailableError("an instance is stopping"));
    }
  }
  changed_.notify_all();
  thread_.join();
}

absl::Status GroupContexts::Make(NodeMembers node) {
  if (node.index < 0 || node.index >= static_cast<int>(node.addresses.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("index ", node.index, " of ", node.addresses.size(), " addresses"));
  }
  const std::lock_guard lock(mutex_);
  if (node.generation <= latest_.generation) {
    return absl::FailedPreconditionError(
        absl::StrCat("generation ", node.generation, ": the latest is ", latest_.generation));
  }
  latest_ = node;
  contexts_.clear();
  status_ = absl::UnavailableError(
      absl::StrCat("the groups of generation ", node.generation, " are being made"));
  // Who waits for a former generation waits in vain.
  for (const auto& [size, context] : making_) {
    context->Abort(absl::UnavailableError("a new generation is being made"));
  }
  next_ = std::move(node);
  changed_.notify_all();
  return absl::OkStatus();
}

void GroupContexts::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || next_.has_value(); });
    if (stopping_) return;
    const NodeMembers node = *std::exchange(next_, std::nullopt);
    lock.unlock();
    absl::StatusOr<Contexts> contexts = MakeAll(node);
    absl::Status status = contexts.status();
    if (status.ok()) {
      lock.lock();
      making_ = *contexts;
      const bool current = !stopping_ && !next_.has_value();
      lock.unlock();
      status = current ? Connect(*contexts, std::chrono::steady_clock::now() + options_.connect_max)
                       : absl::UnavailableError("a new generation is being made");
      // Others may wait for this instance in any of them.
      for (const auto& [size, context] : *contexts) {
        if (!status.ok()) context->Abort(status);
      }
    }
    lock.lock();
    making_.clear();
    const bool latest = node.generation == latest_.generation;
    if (latest) {
      if (status.ok()) {
        contexts_ = *std::move(contexts);
        made_ += contexts_.size();
      }
      status_ = status;
    }
    lock.unlock();
    if (latest && options_.made) options_.made(node.generation, status);
    lock.lock();
  }
}

absl::StatusOr<GroupContexts::Contexts> GroupContexts::MakeAll(const NodeMembers& node) {
  Contexts contexts;
  const std::span<const std::string> addresses = node.addresses;
  for (int size = 2; size <= static_cast<int>(addresses.size()); size *= 2) {
    const int first = node.index / size * size;
    if (first + size > static_cast<int>(addresses.size())) continue;
    const auto theirs = addresses.subspan(static_cast<size_t>(first), static_cast<size_t>(size));
    // Groups of other sizes may have modes with the same members.
    const GroupId id = {node.generation, kContexts + static_cast<uint64_t>(size)};
    absl::StatusOr<GroupComms> comms =
        GroupComms::Make(fabric_, id, theirs, node.index - first, ModesOf(size));
    if (!comms.ok()) return comms.status();
    contexts[size] = std::make_shared<GroupContext>(node.generation, node.index - first, size,
                                                    *std::move(comms));
  }
  return contexts;
}

// From small to large at every instance, and in one order of modes, so nobody waits in a ring.
absl::Status GroupContexts::Connect(const Contexts& contexts, CommDeadline deadline) {
  for (const auto& [size, context] : contexts) {
    for (const GroupMode mode : ModesOf(size)) {
      const GroupPart part = context->Part(mode, deadline);
      for (Communicator* comm : {part.all, mode.sp > 1 && mode.tp > 1 ? part.sp : nullptr,
                                 mode.sp > 1 && mode.tp > 1 ? part.tp : nullptr}) {
        if (comm == nullptr) continue;
        const absl::Status met = comm->AllReduce(nullptr, 0, DType::kF32, deadline);
        if (met.ok()) continue;
        return absl::UnavailableError(
            absl::StrCat("a group of ", size, " instances: ", std::string(met.message())));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<GroupContext>> GroupContexts::Take(
    std::span<const int> members) const {
  const int size = static_cast<int>(members.size());
  const std::lock_guard lock(mutex_);
  const int first = size == 0 ? 0 : latest_.index / size * size;
  bool aligned = size >= 2 && (size & (size - 1)) == 0 &&
                 first + size <= static_cast<int>(latest_.addresses.size());
  for (int i = 0; aligned && i < size; ++i) {
    aligned = members[static_cast<size_t>(i)] == first + i;
  }
  if (!aligned) {
    return absl::InvalidArgumentError(absl::StrCat("no group {", absl::StrJoin(members, ", "),
                                                   "} at instance ", latest_.index,
                                                   ": not aligned neighbours that it belongs to"));
  }
  if (!status_.ok()) return status_;
  return contexts_.at(size);
}

uint64_t GroupContexts::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace skein::engine
