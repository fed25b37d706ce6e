// A Communicator that breaks on purpose, over any other: for the tests of everything that uses one.
// With a plan of no faults it is transparent (the conformance suite runs it so).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "engine/comm/communicator.h"

namespace skein::engine {

struct CommFault {
  enum Kind {
    kNone,
    kDelay,  // the call starts `delay` later
    kStall,  // the call never starts; ends by its deadline, or by Abort
    kFail,   // the call never starts and the group is aborted; ends UNAVAILABLE
  };
  Kind kind = kNone;
  std::chrono::milliseconds delay{0};
};

class FaultCommunicator : public Communicator {
 public:
  // Asked at every call, with how many came before.
  using Plan = std::function<CommFault(uint64_t call)>;

  FaultCommunicator(std::unique_ptr<Communicator> inner, Plan plan);

  int Rank() const override { return inner_->Rank(); }
  int Size() const override { return inner_->Size(); }
  void Tag(uint64_t tag) override { inner_->Tag(tag); }
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

 private:
  // OK: the inner call may start.
  absl::Status Interfere(CommDeadline deadline);

  const std::unique_ptr<Communicator> inner_;
  const Plan plan_;
  uint64_t calls_ = 0;
  std::mutex mutex_;  // guards aborted_
  std::condition_variable changed_;
  bool aborted_ = false;
};

}  // namespace skein::engine
