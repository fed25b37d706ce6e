#include "engine/comm/paths/tried_communicator.h"

#include <algorithm>
#include <utility>

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMeetMax = std::chrono::minutes(10);  // a member may be made so much later
// Bounds the arithmetic of deadlines such as time_point::max().
constexpr auto kSleepMax = std::chrono::seconds(10);

}  // namespace

TriedCommunicator::TriedCommunicator(std::unique_ptr<Communicator> first,
                                     std::unique_ptr<Communicator> second, Trial trial)
    : second_(std::move(second)), trial_(std::move(trial)), first_(std::move(first)) {
  trying_ = std::thread([this] { Try(); });
}

// A trial under way is broken off; no call was OK before its end.
TriedCommunicator::~TriedCommunicator() {
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    known = way_ != nullptr;
  }
  if (!known) Abort(absl::UnavailableError("a rank left before the group was set up"));
  trying_.join();
}

void TriedCommunicator::Try() {
  const bool works = FirstWorks();
  if (trial_.only_tries) EndFirst();  // before anybody knows how it went
  {
    const std::lock_guard lock(mutex_);
    works_ = works;
    way_ = works && first_ != nullptr ? first_.get() : second_.get();
  }
  known_.notify_all();
}

void TriedCommunicator::EndFirst() {
  std::unique_ptr<Communicator> first;  // ends when the lock is free
  const std::lock_guard lock(mutex_);
  first = std::move(first_);
}

bool TriedCommunicator::FirstWorks() {
  if (!trial_.meet(Clock::now() + kMeetMax).ok()) return false;
  const absl::Status status = trial_.run(Clock::now() + trial_.max, left_);
  if (status.ok()) return true;
  first_->Abort(status);
  // A group that was aborted, or that a rank has left, says nothing about the way.
  if (trial_.meet(Clock::now() + trial_.max).ok()) trial_.refused(status);
  return false;
}

bool TriedCommunicator::OnFirst() const {
  const std::lock_guard lock(mutex_);
  return works_;
}

template <typename Call>
absl::Status TriedCommunicator::OnTheWay(CommDeadline deadline, const Call& call) {
  if (!AwaitWay(deadline)) {
    const auto late = absl::DeadlineExceededError("not all ranks of the group came in time");
    Abort(late);
    return late;
  }
  way_->Tag(tag_);  // it does not change any more
  return call(way_);
}

bool TriedCommunicator::AwaitWay(CommDeadline deadline) {
  std::unique_lock lock(mutex_);
  while (way_ == nullptr) {
    if (Clock::now() >= deadline) return false;
    known_.wait_until(lock, std::min(deadline, Clock::now() + kSleepMax));
  }
  return true;
}

absl::Status TriedCommunicator::AwaitFirst(CommDeadline deadline) {
  if (!AwaitWay(deadline)) return absl::DeadlineExceededError("the path's trial has not ended");
  if (OnFirst()) return absl::OkStatus();
  return absl::UnavailableError("the path was given up");
}

absl::Status TriedCommunicator::AllReduce(void* data, int64_t count, DType dtype,
                                          CommDeadline deadline) {
  return OnTheWay(deadline,
                  [&](Communicator* way) { return way->AllReduce(data, count, dtype, deadline); });
}

absl::Status TriedCommunicator::AllGather(std::span<const std::byte> send,
                                          std::span<std::byte> receive, CommDeadline deadline) {
  return OnTheWay(deadline,
                  [&](Communicator* way) { return way->AllGather(send, receive, deadline); });
}

absl::Status TriedCommunicator::ReduceScatter(const void* send, void* receive, int64_t count,
                                              DType dtype, CommDeadline deadline) {
  return OnTheWay(deadline, [&](Communicator* way) {
    return way->ReduceScatter(send, receive, count, dtype, deadline);
  });
}

absl::Status TriedCommunicator::AllToAll(std::span<const std::span<const std::byte>> send,
                                         std::span<const std::span<std::byte>> receive,
                                         CommDeadline deadline) {
  return OnTheWay(deadline,
                  [&](Communicator* way) { return way->AllToAll(send, receive, deadline); });
}

absl::Status TriedCommunicator::SendRecv(std::span<const std::byte> send, int to,
                                         std::span<std::byte> receive, int from,
                                         CommDeadline deadline) {
  return OnTheWay(deadline, [&](Communicator* way) {
    return way->SendRecv(send, to, receive, from, deadline);
  });
}

absl::Status TriedCommunicator::Broadcast(std::span<std::byte> data, int root,
                                          CommDeadline deadline) {
  return OnTheWay(deadline,
                  [&](Communicator* way) { return way->Broadcast(data, root, deadline); });
}

void TriedCommunicator::Abort(const absl::Status& reason) {
  left_ = true;
  {
    const std::lock_guard lock(mutex_);
    if (first_ != nullptr) first_->Abort(reason);
  }
  second_->Abort(reason);
}

}  // namespace skein::engine
