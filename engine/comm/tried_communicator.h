// A group that tries a fast way, and takes another one if that does not work at some rank. Internal
// to this folder.
//
// Whether a way works may only show at its first use: a container may refuse to open another one's
// memory, NCCL may find no network. So each rank tries it in a thread of its own, as soon as the
// group is made; the first call waits for that. All ranks decide alike:
//  1. They meet on the second way: from here on all are there, and the trial's time runs.
//  2. They move bytes over the first way, look at them, and meet on it. A rank where that failed
//     breaks the first way instead, so that no other's meeting is OK: OK at one rank says that no
//     rank was refused.
//  3. Who was not OK, by itself or by another's word, breaks the first way and goes the second, if
//     all others do (they meet there again).
// What is left is a rank that dies or aborts between its own OK and another's: then the ranks are
// on different ways, each of which is broken or ends at a member's leaving or by the deadline.
//
// The time from MakeGroup to the first call's start is a few messages where the first way works.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/comm/communicator.h"

namespace skein::engine {

struct Trial {
  // OK when all ranks are there: a call without data on the second way.
  std::function<absl::Status(CommDeadline)> meet;
  // Moves bytes between all ranks over the first way, looks at them, and meets on it.
  std::function<absl::Status(CommDeadline)> run;
  std::chrono::milliseconds max{20'000};  // of `run`
  // The first way is given up for this reason. On the trial's thread, at most once, at each rank.
  std::function<void(const absl::Status&)> refused;
};

class TriedCommunicator final : public Communicator {
 public:
  // Both ways are of the same ranks.
  TriedCommunicator(std::unique_ptr<Communicator> first, std::unique_ptr<Communicator> second,
                    Trial trial);
  ~TriedCommunicator() override;

  int Rank() const override { return second_->Rank(); }
  int Size() const override { return second_->Size(); }

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

  // Whether the group goes the first way; false until that is known.
  bool OnFirst() const;

 private:
  void Try();
  bool FirstWorks();
  template <typename Call>
  absl::Status OnTheWay(CommDeadline deadline, const Call& call);

  const std::unique_ptr<Communicator> first_, second_;
  const Trial trial_;
  mutable std::mutex mutex_;
  std::condition_variable known_;
  Communicator* way_ = nullptr;  // null until it is known
  std::thread trying_;
};

}  // namespace skein::engine
