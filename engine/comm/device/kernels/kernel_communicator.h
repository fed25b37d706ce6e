// One rank of a group whose collectives are kernels (kernel_fabric.h). Internal to this folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/comm/device/kernels/kernel_fabric.h"
#include "engine/comm/device/kernels/kernel_memory.h"

namespace skein::engine {

class KernelCommunicator final : public Communicator {
 public:
  KernelCommunicator(const KernelFabricParts& parts, std::unique_ptr<Communicator> hosts,
                     std::unique_ptr<Communicator> below, std::shared_ptr<KernelMemory> memory)
      : parts_(parts),
        hosts_(std::move(hosts)),
        below_(std::move(below)),
        memory_(std::move(memory)) {}
  ~KernelCommunicator() override;

  int Rank() const override { return hosts_->Rank(); }
  int Size() const override { return hosts_->Size(); }

  void Tag(uint64_t tag) override;
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
  enum Operation : uint64_t { kAllReduce = 1, kAllGather, kAllToAll };
  // Whether kernels can serve the group at a rank; later: its memory rests.
  enum class Can : uint64_t { kNo, kYes, kLater };
  // What a rank says when a group is set up.
  struct Greeting {
    PeerPlace place;
    Can can = Can::kNo;
  };

  bool ByKernels() const { return group_.has_value(); }
  absl::Status SetUp(CommDeadline deadline);
  absl::Status TakeMemory(PeerGroup* group);
  absl::Status Offer(PeerGroup* group, Greeting* own);
  absl::Status OpenAll(std::span<const Greeting> all, PeerGroup* group, Greeting* own);
  void TakeBelow(const absl::Status& why);
  // The hosts meet over what the call is (its size, or what is sent to each rank), if they are to:
  // `asks` is true of calls without data. OK: its kernel may be queued now.
  absl::Status Begin(Operation operation, bool asks, uint64_t size, std::span<const uint64_t> sent,
                     std::span<const uint64_t> expected, CommDeadline deadline);
  absl::Status Meet(Operation operation, uint64_t size, std::span<const uint64_t> sent,
                    std::span<const uint64_t> expected, CommDeadline deadline);
  // OK when all kernels so far ended well at this rank.
  absl::Status Settle();
  absl::Status Broken(const absl::Status& status);
  // REQUIRES: it is broken.
  absl::Status WhyBroken(CommDeadline deadline) { return hosts_->AllGather({}, {}, deadline); }
  const PeerGroup& GroupUntil(CommDeadline deadline);  // for a kernel that is queued now
  void Count(uint64_t bytes) const {
    if (parts_.queued != nullptr && bytes > 0) parts_.queued(Size(), bytes);
  }

  const KernelFabricParts parts_;
  const std::unique_ptr<Communicator> hosts_, below_;
  const std::shared_ptr<KernelMemory> memory_;
  bool set_up_ = false;
  std::optional<PeerGroup> group_;  // of kernels
  KernelMemory::Lot lot_;
  std::atomic<std::byte*> broken_word_{nullptr};  // once kernels serve the group
  std::atomic<bool> aborted_{false};              // here
  bool tagged_ = false;
  bool met_ = false;                  // the hosts have, in this step
  CommDeadline queue_until_{};        // kernels, after that meeting
  bool queued_ = false;               // a kernel, since the last Settle
  std::atomic<bool> written_{false};  // a kernel may have been queued, by any rank
};

}  // namespace skein::engine
