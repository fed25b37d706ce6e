// A Link whose messages go by NCCL once both hosts agreed on them. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/link.h"

namespace skein::engine {

// OK, or UNAVAILABLE with the call's name.
absl::Status FromCuda(cudaError_t error, const char* what);
absl::Status FromNccl(ncclResult_t result, const char* what);

// What runs on a stream of its own. An error is kept until the link's next Wait.
class CudaMemory : public LinkMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {}
  ~CudaMemory() override;

  // Before anything else.
  absl::Status Open();

  int64_t PieceBytes() const override { return 32 << 20; }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override;
  void Copy(std::byte* to, std::span<const std::byte> from) override;
  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  const absl::Status& error() const { return error_; }

 private:
  void Keep(absl::Status status);

  const int device_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  absl::Status error_;
};

class NcclLink : public Link {
 public:
  // `hosts` is the same group's link between the hosts.
  NcclLink(std::unique_ptr<Link> hosts, int device);
  ~NcclLink() override;

  int Rank() const override { return hosts_->Rank(); }
  int Size() const override { return hosts_->Size(); }
  void Send(int to, std::span<const std::byte> data, Signature signature) override;
  void Receive(int from, std::span<std::byte> data, Signature signature) override;
  absl::Status Wait(CommDeadline deadline) override;
  absl::Status Health() override { return hosts_->Health(); }
  LinkMemory* Memory() override { return &memory_; }
  void Abort(const absl::Status& reason) override { hosts_->Abort(reason); }

 private:
  struct Message {
    bool outgoing = false;
    int peer = 0;
    void* data = nullptr;
    size_t bytes = 0;
    Signature signature = 0;
  };

  void SetUp();
  absl::Status ExchangeId(ncclUniqueId* id);
  absl::Status AwaitSetUp(CommDeadline deadline);
  absl::Status Launch();
  absl::Status Finish(CommDeadline deadline);
  absl::Status AwaitNccl(CommDeadline deadline);
  absl::Status Fail(const absl::Status& status);

  const std::unique_ptr<Link> hosts_;
  CudaMemory memory_;
  std::vector<Message> messages_;
  ncclComm_t comm_ = nullptr;  // the setting-up thread's until set_up_
  absl::Status set_up_status_;
  std::atomic<bool> set_up_{false};
  std::atomic<bool> leaving_{false};
  std::thread setting_up_;
};

}  // namespace skein::engine
