// The state that the ranks of an in-process group share. Internal to engine/comm.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/algorithms/link.h"

namespace skein::engine {

class LocalGroup {
 public:
  explicit LocalGroup(int size);

  int Size() const { return static_cast<int>(ranks_.size()); }

  // False if the rank joined before, or left.
  bool Join(int rank);
  // Calls that need this rank end UNAVAILABLE from now on. True: all ranks have left.
  bool Leave(int rank);

  void Send(int from, int to, std::span<const std::byte> data, Signature signature);
  void Receive(int from, int to, std::span<std::byte> data, Signature signature);
  absl::Status Wait(int rank, CommDeadline deadline);
  absl::Status Health();
  void Break(const absl::Status& reason);

 private:
  struct Outgoing {
    std::span<const std::byte> data;
    Signature signature;
    bool copying = false;
  };
  struct Incoming {
    int from;
    std::span<std::byte> data;
    Signature signature;
  };
  struct RankState {
    bool joined = false;
    bool left = false;
    std::deque<Incoming> receives;  // in order
    std::condition_variable changed;
    std::atomic<uint64_t> changes{0};  // lets a waiting rank spin without the lock
  };
  using Lock = std::unique_lock<std::mutex>;

  std::deque<Outgoing>& Channel(int from, int to) { return channels_[from * Size() + to]; }
  void Notify(int rank);
  void BreakLocked(const absl::Status& reason);
  bool Idle(int rank);
  bool ReceiveOne(int rank, Lock* lock);
  void FailIfNeeded(int rank, CommDeadline deadline);
  void Sleep(int rank, CommDeadline deadline, Lock* lock);
  void Withdraw(int rank, Lock* lock);

  std::mutex mutex_;  // guards all below; released while bytes are copied
  absl::Status broken_;
  int late_rank_ = -1;  // whose deadline broke the group
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::vector<std::deque<Outgoing>> channels_;  // from * size + to
};

}  // namespace skein::engine
