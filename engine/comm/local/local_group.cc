#include "engine/comm/local/local_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

// Looks before a rank sleeps, a few microseconds; ranks may outnumber cores, and a thread that
// yields on a busy machine comes back after everybody's time slice.
constexpr int kSpins = 1000;
// Bounds the arithmetic of deadlines such as time_point::max().
constexpr auto kSleepMax = std::chrono::minutes(1);

}  // namespace

LocalGroup::LocalGroup(int size) : channels_(size * size) {
  for (int r = 0; r < size; ++r) ranks_.push_back(std::make_unique<RankState>());
}

bool LocalGroup::Join(int rank) {
  Lock lock(mutex_);
  if (ranks_[rank]->joined || ranks_[rank]->left) return false;
  ranks_[rank]->joined = true;
  return true;
}

bool LocalGroup::Leave(int rank) {
  Lock lock(mutex_);
  ranks_[rank]->left = true;
  for (int r = 0; r < Size(); ++r) Notify(r);
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r->left; });
}

void LocalGroup::Send(int from, int to, std::span<const std::byte> data, Signature signature) {
  Lock lock(mutex_);
  if (!broken_.ok()) return;
  Channel(from, to).push_back({data, signature});
  Notify(to);
}

void LocalGroup::Receive(int from, int to, std::span<std::byte> data, Signature signature) {
  Lock lock(mutex_);
  if (!broken_.ok()) return;
  ranks_[to]->receives.push_back({from, data, signature});
}

absl::Status LocalGroup::Health() {
  Lock lock(mutex_);
  return broken_;
}

void LocalGroup::Break(const absl::Status& reason) {
  Lock lock(mutex_);
  BreakLocked(reason);
}

void LocalGroup::BreakLocked(const absl::Status& reason) {
  if (!broken_.ok()) return;
  const std::string text(reason.message());
  broken_ = reason.code() == absl::StatusCode::kInternal ? reason : absl::UnavailableError(text);
  for (int r = 0; r < Size(); ++r) Notify(r);
}

void LocalGroup::Notify(int rank) {
  ranks_[rank]->changes.fetch_add(1, std::memory_order_release);
  ranks_[rank]->changed.notify_one();
}

bool LocalGroup::Idle(int rank) {
  if (!ranks_[rank]->receives.empty()) return false;
  for (int to = 0; to < Size(); ++to) {
    if (!Channel(rank, to).empty()) return false;
  }
  return true;
}

// Copies the first message that is there for `rank`. False: none is.
bool LocalGroup::ReceiveOne(int rank, Lock* lock) {
  auto& receives = ranks_[rank]->receives;
  for (auto receive = receives.begin(); receive != receives.end(); ++receive) {
    const Incoming incoming = *receive;
    auto& channel = Channel(incoming.from, rank);
    if (channel.empty()) continue;
    Outgoing& outgoing = channel.front();
    if (outgoing.data.size() != incoming.data.size() || outgoing.signature != incoming.signature) {
      BreakLocked(absl::InternalError(absl::StrCat(
          "rank ", incoming.from, " sends ", outgoing.data.size(), " bytes where rank ", rank,
          " expects ", incoming.data.size(), ", or in another operation")));
      return false;
    }
    outgoing.copying = true;
    lock->unlock();
    if (!incoming.data.empty()) {
      std::memcpy(incoming.data.data(), outgoing.data.data(), incoming.data.size());
    }
    lock->lock();
    channel.pop_front();
    receives.erase(receive);
    Notify(incoming.from);
    return true;
  }
  return false;
}

// Breaks the group if the deadline passed or `rank` needs a rank that left.
void LocalGroup::FailIfNeeded(int rank, CommDeadline deadline) {
  const auto lacks = [&](int peer) {
    return absl::UnavailableError(absl::StrCat("rank ", peer, " left the group"));
  };
  for (const Incoming& incoming : ranks_[rank]->receives) {
    if (ranks_[incoming.from]->left && Channel(incoming.from, rank).empty()) {
      return BreakLocked(lacks(incoming.from));
    }
  }
  for (int to = 0; to < Size(); ++to) {
    if (ranks_[to]->left && !Channel(rank, to).empty()) return BreakLocked(lacks(to));
  }
  if (std::chrono::steady_clock::now() >= deadline) {
    BreakLocked(absl::UnavailableError(absl::StrCat("rank ", rank, "'s deadline passed")));
    late_rank_ = rank;
  }
}

void LocalGroup::Sleep(int rank, CommDeadline deadline, Lock* lock) {
  RankState& own = *ranks_[rank];
  const uint64_t seen = own.changes.load(std::memory_order_acquire);
  lock->unlock();
  for (int i = 0; i < kSpins && own.changes.load(std::memory_order_acquire) == seen; ++i) {
  }
  lock->lock();
  const auto until = std::min(deadline, std::chrono::steady_clock::now() + kSleepMax);
  own.changed.wait_until(*lock, until, [&] { return own.changes.load() != seen; });
}

// Takes back what this rank posted; a receiver that copies from it finishes first.
void LocalGroup::Withdraw(int rank, Lock* lock) {
  ranks_[rank]->receives.clear();
  for (int to = 0; to < Size(); ++to) {
    auto& channel = Channel(rank, to);
    ranks_[rank]->changed.wait(*lock, [&] { return channel.empty() || !channel.front().copying; });
    channel.clear();
  }
}

absl::Status LocalGroup::Wait(int rank, CommDeadline deadline) {
  Lock lock(mutex_);
  while (broken_.ok() && !Idle(rank)) {
    if (ReceiveOne(rank, &lock)) continue;
    if (broken_.ok()) FailIfNeeded(rank, deadline);
    if (broken_.ok()) Sleep(rank, deadline, &lock);
  }
  if (broken_.ok()) return broken_;
  Withdraw(rank, &lock);
  return late_rank_ == rank ? absl::DeadlineExceededError(broken_.message()) : broken_;
}

}  // namespace skein::engine
