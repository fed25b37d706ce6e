#include "engine/comm/device/nccl_lanes.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/comm/device/cuda_memory.h"

namespace skein::engine {
namespace {

// Of a lane's kernel. A block takes at most one multiprocessor, and four move what a network card
// does (not measured).
constexpr int kBlocksMax = 4;

static_assert(sizeof(ncclUniqueId) <= sizeof(LaneKey));

absl::Status FromNccl(const NcclApi& nccl, ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", nccl.get_error_string(result)));
}

// Its kernels and copies run on its stream.
class NcclLaneMemory final : public StreamMemory {
 public:
  explicit NcclLaneMemory(int device) : memory_(device) {}
  ~NcclLaneMemory() override {
    cudaSetDevice(memory_.device());
    if (memory_.stream() != nullptr) cudaStreamSynchronize(memory_.stream());
  }

  absl::Status Open() { return memory_.Open(); }

  int64_t PieceBytes() const override { return memory_.PieceBytes(); }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override { return memory_.Scratch(bytes); }
  void Copy(std::byte* to, std::span<const std::byte> from) override { memory_.Copy(to, from); }
  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override {
    memory_.Sum(sources, out, count, dtype);
  }
  absl::Status Finish() override { return memory_.Finish(); }

 private:
  CudaMemory memory_;
};

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
    nccl_.group_start();
    for (const LaneMessage& message : messages) {
      if (!status.ok()) break;
      status = message.outgoing ? FromNccl(nccl_,
                                           nccl_.send(message.data, message.bytes, ncclUint8,
                                                      1 - end_, comm_, stream_),
                                           "ncclSend")
                                : FromNccl(nccl_,
                                           nccl_.recv(message.data, message.bytes, ncclUint8,
                                                      1 - end_, comm_, stream_),
                                           "ncclRecv");
    }
    const absl::Status ended = FromNccl(nccl_, nccl_.group_end(), "ncclGroupEnd");
    return status.ok() ? ended : status;
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
    auto memory = std::make_unique<NcclLaneMemory>(device_);
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
