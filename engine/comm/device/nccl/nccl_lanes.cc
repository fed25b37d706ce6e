#include "engine/comm/device/nccl/nccl_lanes.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/comm/device/cuda_memory.h"
#include "engine/comm/device/nccl/nccl_calls.h"

namespace skein::engine {
namespace {

// Of a lane's kernel. A block takes at most one multiprocessor, and four move what a network card
// does (not measured).
constexpr int kBlocksMax = 4;

static_assert(sizeof(ncclUniqueId) <= sizeof(LaneKey));

class NcclLane final : public Lane {
 public:
  NcclLane(const NcclApi* nccl, int device, int end) : nccl_(*nccl), device_(device), end_(end) {}
  ~NcclLane() override {
    cudaSetDevice(device_);
    if (comm_ != nullptr) nccl_.comm_abort(comm_);
    if (stream_ == nullptr) return;
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  // NCCL goes on in a thread of its own.
  absl::Status Begin(const ncclUniqueId& id) {
    absl::Status status = AsCommStatus(cudaSetDevice(device_), "cudaSetDevice");
    if (!status.ok()) return status;
    status = AsCommStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                          "cudaStreamCreate");
    if (!status.ok()) return status;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = kBlocksMax;
    return FromNccl(nccl_, nccl_.comm_init_rank_config(&comm_, 2, id, end_, &config),
                    "ncclCommInitRank");
  }

  absl::StatusOr<bool> Done() override {
    ncclResult_t result = ncclSuccess;
    absl::Status status =
        FromNccl(nccl_, nccl_.comm_get_async_error(comm_, &result), "ncclCommGetAsyncError");
    if (status.ok()) status = FromNccl(nccl_, result, "NCCL");
    if (!status.ok()) return status;
    if (result == ncclInProgress) return false;
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaErrorNotReady) return false;
    status = AsCommStatus(state, "a lane's messages");
    if (!status.ok()) return status;
    return true;
  }

  absl::Status Start(std::span<const LaneMessage> messages) override {
    absl::Status status = AsCommStatus(cudaSetDevice(device_), "cudaSetDevice");
    if (!status.ok()) return status;
    std::vector<NcclMessage> all;
    for (const LaneMessage& message : messages) {
      all.push_back({message.outgoing, 1 - end_, message.data, message.bytes});
    }
    return StartTogether(nccl_, comm_, stream_, all);
  }

 private:
  const NcclApi& nccl_;
  const int device_;
  const int end_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

class NcclLaneMaker final : public LaneMaker {
 public:
  NcclLaneMaker(const NcclApi* nccl, int device) : nccl_(nccl), device_(device) {}

  const char* Name() const override { return "nccl"; }

  absl::StatusOr<LaneKey> NewKey() override {
    ncclUniqueId id{};
    const absl::Status status = FromNccl(*nccl_, nccl_->get_unique_id(&id), "ncclGetUniqueId");
    if (!status.ok()) return status;
    LaneKey key = {};
    std::memcpy(key.data(), &id, sizeof id);
    return key;
  }

  absl::StatusOr<std::unique_ptr<Lane>> Make(const LaneKey& key, int end) override {
    ncclUniqueId id{};
    std::memcpy(&id, key.data(), sizeof id);
    auto lane = std::make_unique<NcclLane>(nccl_, device_, end);
    const absl::Status begun = lane->Begin(id);
    if (!begun.ok()) return begun;
    return lane;
  }

  absl::StatusOr<std::unique_ptr<StreamMemory>> MakeMemory() override {
    auto memory = std::make_unique<CudaMemory>(device_);
    const absl::Status opened = memory->Open();
    if (!opened.ok()) return opened;
    return memory;
  }

 private:
  const NcclApi* const nccl_;
  const int device_;
};

}  // namespace

std::shared_ptr<LaneMaker> MakeNcclLaneMaker(const NcclApi* nccl, int device) {
  return std::make_shared<NcclLaneMaker>(nccl, device);
}

}  // namespace skein::engine
