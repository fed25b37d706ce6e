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
constexpr uint64_t kHosts = 0x736b686f73747300u;     // of their hosts' groups

// The name of a rank's feed wire, as it travels.
struct FeedName {
  uint64_t size = 0;
  char text[248] = {};
};

}  // namespace

GroupContexts::GroupContexts(Fabric* fabric, Fabric* hosts, Options options)
    : fabric_(fabric),
      hosts_(hosts),
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
  failed_ = false;
  if (!contexts_.empty()) former_ = std::exchange(contexts_, {});
  status_ = absl::UnavailableError(
      absl::StrCat("the groups of generation ", node.generation, " are being made"));
  // Abort the former generation; nobody else will complete it.
  for (const auto& [size, context] : making_) {
    context->Abort(absl::UnavailableError("a new generation is being made"));
  }
  next_ = std::move(node);
  changed_.notify_all();
  return absl::OkStatus();
}

// Former contexts are destroyed without the lock, because on GPUs that waits for the device.
void GroupContexts::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || next_.has_value(); });
    if (stopping_) return;
    const NodeMembers node = *std::exchange(next_, std::nullopt);
    Contexts former = std::exchange(former_, {});
    lock.unlock();
    former.clear();
    MakeGeneration(node);
    lock.lock();
  }
}

void GroupContexts::MakeGeneration(const NodeMembers& node) {
  absl::StatusOr<Contexts> contexts = MakeAll(node);
  absl::Status status = contexts.status();
  std::unique_lock lock(mutex_);
  if (status.ok()) {
    making_ = *contexts;
    const bool current = !stopping_ && !next_.has_value();
    lock.unlock();
    status = current ? Connect(*contexts, std::chrono::steady_clock::now() + options_.connect_max)
                     : absl::UnavailableError("a new generation is being made");
    // Others may wait for this instance in any of them.
    for (const auto& [size, context] : *contexts) {
      if (!status.ok()) context->Abort(status);
    }
    lock.lock();
  }
  making_.clear();
  const bool latest = node.generation == latest_.generation;
  if (latest) {
    if (status.ok()) {
      contexts_ = *std::move(contexts);
      made_ += contexts_.size();
    }
    status_ = status;
    failed_ = !status.ok();
  }
  lock.unlock();
  if (latest && options_.made) options_.made(node.generation, status);
}

absl::StatusOr<GroupContexts::Contexts> GroupContexts::MakeAll(const NodeMembers& node) {
  Contexts contexts;
  const std::span<const std::string> addresses = node.addresses;
  const int largest = std::min(kGroupRanksMax, static_cast<int>(addresses.size()));
  for (int size = 2; size <= largest; size *= 2) {
    const int first = node.index / size * size;
    if (first + size > static_cast<int>(addresses.size())) continue;
    const auto theirs = addresses.subspan(static_cast<size_t>(first), static_cast<size_t>(size));
    absl::StatusOr<GroupContext::Ends> ends = MakeEnds(node.generation, theirs, node.index - first);
    if (!ends.ok()) return ends.status();
    contexts[size] = std::make_shared<GroupContext>(
        node.generation, std::vector<std::string>(theirs.begin(), theirs.end()), node.index - first,
        *std::move(ends));
  }
  return contexts;
}

absl::StatusOr<GroupContext::Ends> GroupContexts::MakeEnds(uint64_t generation,
                                                           std::span<const std::string> addresses,
                                                           int rank) {
  // Groups of other sizes may have modes with the same members.
  const auto size = static_cast<uint64_t>(addresses.size());
  absl::StatusOr<GroupComms> comms = GroupComms::Make(
      fabric_, {generation, kContexts + size}, addresses, rank, ModesOf(static_cast<int>(size)));
  if (!comms.ok()) return comms.status();
  auto hosts = hosts_->MakeGroup({generation, kHosts + size}, addresses, rank);
  if (!hosts.ok()) return hosts.status();
  auto feed = RankWire::Make();
  if (!feed.ok()) return feed.status();
  return GroupContext::Ends{*std::move(comms), *std::move(hosts), *std::move(feed)};
}

// From small to large at every instance, and in one order of modes, so nobody waits in a ring.
absl::Status GroupContexts::Connect(const Contexts& contexts, CommDeadline deadline) {
  for (const auto& [size, context] : contexts) {
    absl::Status status = ConnectComms(*context, deadline);
    if (status.ok()) status = JoinFeed(context.get(), deadline);
    if (status.ok()) continue;
    return absl::UnavailableError(
        absl::StrCat("a group of ", size, " instances: ", std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status GroupContexts::ConnectComms(const GroupContext& context, CommDeadline deadline) {
  for (const GroupMode mode : ModesOf(context.size())) {
    const GroupPart part = context.Part(mode, deadline);
    const bool both = mode.sp > 1 && mode.tp > 1;
    for (Communicator* comm : {part.all, both ? part.sp : nullptr, both ? part.tp : nullptr}) {
      if (comm == nullptr) continue;
      absl::Status met = comm->AllReduce(nullptr, 0, DType::kF32, deadline);
      if (!met.ok()) return met;
    }
  }
  return absl::OkStatus();
}

// The ranks tell each other their wires. At the end they meet: one that could not join ends it for
// all. Nothing else is for their hosts.
absl::Status GroupContexts::JoinFeed(GroupContext* context, CommDeadline deadline) {
  const std::string& name = context->feed()->name();
  FeedName own{.size = name.size()};
  if (name.size() > sizeof own.text) return absl::InternalError("the feed's name is too long");
  std::copy(name.begin(), name.end(), own.text);
  std::vector<FeedName> all(static_cast<size_t>(context->size()));
  Communicator* const hosts = context->ends_.hosts.get();
  absl::Status status = hosts->AllGather(std::as_bytes(std::span(&own, 1)),
                                         std::as_writable_bytes(std::span(all)), deadline);
  if (!status.ok()) return status;
  std::vector<std::string> names;
  for (const FeedName& one : all) {
    names.emplace_back(one.text, std::min<uint64_t>(one.size, sizeof one.text));
  }
  status = context->feed()->Join(context->generation(), names, context->rank());
  if (status.ok()) status = hosts->AllReduce(nullptr, 0, DType::kF32, deadline);
  if (!status.ok()) return status;
  std::unique_ptr<Communicator> done;
  const std::lock_guard lock(context->hosts_mutex_);
  done.swap(context->ends_.hosts);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<GroupContext>> GroupContexts::Take(
    std::span<const int> members) const {
  const int size = static_cast<int>(members.size());
  const std::lock_guard lock(mutex_);
  const int first = size == 0 ? 0 : latest_.index / size * size;
  bool aligned = size >= 2 && size <= kGroupRanksMax && (size & (size - 1)) == 0 &&
                 first + size <= static_cast<int>(latest_.addresses.size());
  for (int i = 0; aligned && i < size; ++i) {
    aligned = members[static_cast<size_t>(i)] == first + i;
  }
  if (!aligned) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no group {", absl::StrJoin(members, ", "), "} at instance ", latest_.index,
        ": not aligned neighbours that it belongs to, 2 to ", kGroupRanksMax, " of them"));
  }
  if (!status_.ok()) return status_;
  return contexts_.at(size);
}

std::vector<std::shared_ptr<GroupContext>> GroupContexts::Ready() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GroupContext>> ready;
  for (const auto& [size, context] : contexts_) ready.push_back(context);
  return ready;
}

uint64_t GroupContexts::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

GroupContexts::State GroupContexts::state() const {
  const std::lock_guard lock(mutex_);
  State state{.generation = latest_.generation, .ready = status_.ok(), .failure = {}};
  if (failed_) state.failure = status_;
  for (const auto& [size, context] : contexts_) {
    if (!context->broken()) continue;
    state.failure =
        absl::UnavailableError(absl::StrCat("a group of ", size, " instances has broken"));
  }
  return state;
}

}  // namespace skein::engine
