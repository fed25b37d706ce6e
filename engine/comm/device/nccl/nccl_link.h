// A Link whose messages go by NCCL once both hosts agreed on them. Internal to engine/comm.
#pragma once

#include <nccl.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/algorithms/link.h"
#include "engine/comm/device/cuda_memory.h"
#include "engine/comm/device/nccl/nccl_api.h"
#include "engine/comm/device/nccl/nccl_calls.h"

namespace skein::engine {

class NcclLink : public Link {
 public:
  // `hosts` is the same group's link between the hosts.
  NcclLink(std::unique_ptr<Link> hosts, const NcclApi* nccl, int device);
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
    NcclMessage of_nccl;
    Signature signature = 0;
  };

  absl::Status Here(const absl::Status& status) const;  // with this rank's number
  absl::Status Look(ncclResult_t* state) const;         // for errors; the state of NCCL's own work
  void SetUp();
  absl::Status MakeComm();
  absl::Status ExchangeId(ncclUniqueId* id);
  absl::Status AwaitSetUp(CommDeadline deadline);
  absl::Status Launch();
  absl::Status Finish(CommDeadline deadline);
  absl::Status AwaitNccl(CommDeadline deadline);
  absl::Status Fail(const absl::Status& status);

  const std::unique_ptr<Link> hosts_;
  const NcclApi* const nccl_;
  CudaMemory memory_;
  std::vector<Message> messages_;
  ncclComm_t comm_ = nullptr;  // the setting-up thread's until set_up_
  absl::Status set_up_status_;
  std::atomic<bool> set_up_{false};
  std::atomic<bool> leaving_{false};
  std::thread setting_up_;
};

}  // namespace skein::engine
