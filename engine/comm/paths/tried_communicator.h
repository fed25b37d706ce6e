// A group that tries a fast path, and falls back to another one if the fast path fails at some
// rank. Internal to engine/comm.
//
// Whether a path works may show only at its first use: a container may refuse to open the memory of
// another one, NCCL may find no network. So each rank tries it in a thread of its own as soon as
// the group is made; the first call waits for the result. All ranks decide alike:
//   1. They meet on the fallback path. From here on all ranks are there, and the time of the trial
//      runs.
//   2. They move bytes over the fast path, compare them, and meet on it. A rank where this failed
//      breaks the fast path instead, so that the meeting fails at all others: if it is OK at one
//      rank, the trial succeeded at all.
//   3. A rank whose trial failed, or that learns that another's failed, breaks the fast path and
//      uses the fallback, if all others do (they meet there again).
// One case is left: a rank dies or aborts after its own OK and before that of another. Then the
// ranks are on different paths; each of these is broken, or its calls end when a member leaves or
// at the deadline.
//
// If the fast path works, the trial takes as long as a few messages, between MakeGroup and the
// start of the first call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/comm/communicator.h"

namespace skein::engine {

struct Trial {
  // OK when all ranks are there: a call without data on the fallback path.
  std::function<absl::Status(CommDeadline)> meet;
  // Moves bytes between all ranks over the fast path, compares them, and meets on it. Ends soon
  // after `left` becomes true: this rank has aborted the group.
  std::function<absl::Status(CommDeadline, const std::atomic<bool>& left)> run;
  std::chrono::milliseconds max{20'000};  // of `run`
  // The fast path is given up for this reason. Called on the trial's thread, at most once, at each
  // rank.
  std::function<void(const absl::Status&)> refused;
  // The group is only tried, and no call of it is made: its fast path ends with the trial.
  bool only_tries = false;
};

class TriedCommunicator final : public Communicator {
 public:
  // Both paths have the same ranks.
  TriedCommunicator(std::unique_ptr<Communicator> first, std::unique_ptr<Communicator> second,
                    Trial trial);
  ~TriedCommunicator() override;

  int Rank() const override { return second_->Rank(); }
  int Size() const override { return second_->Size(); }
  void Tag(uint64_t tag) override { tag_ = tag; }

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override;
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override;
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override;
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override;
  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override;
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override;
  void Abort(const absl::Status& reason) override;

  // After a trial with only_tries its answer is all that is left.
  // OK: the group uses the fast path. UNAVAILABLE: the fallback. DEADLINE_EXCEEDED: it is not
  // known.
  absl::Status AwaitFirst(CommDeadline deadline);

  // Whether the group uses the fast path; false until that is known.
  bool OnFirst() const;

 private:
  void Try();
  bool FirstWorks();
  void EndFirst();
  bool AwaitWay(CommDeadline deadline);
  template <typename Call>
  absl::Status OnTheWay(CommDeadline deadline, const Call& call);

  const std::unique_ptr<Communicator> second_;
  const Trial trial_;
  std::atomic<bool> left_{false};  // aborted at this rank
  mutable std::mutex mutex_;
  std::condition_variable known_;
  std::unique_ptr<Communicator> first_;  // the trial's thread alone may end it
  Communicator* way_ = nullptr;          // null until it is known
  bool works_ = false;                   // the trial succeeded
  uint64_t tag_ = 0;                     // of calls, not of the trial
  std::thread trying_;
};

}  // namespace skein::engine
