#include "engine/cuda/engine/cuda_backend.h"

#include <utility>

#include "engine/cuda/attention/wide_choice.h"
#include "engine/cuda/device/cuda_check.h"
#include "engine/cuda/graphs/cuda_graph.h"
#include "engine/cuda/graphs/decode_graphs.h"
#include "engine/cuda/ops/cublas_gemm.h"
#include "engine/cuda/ops/cuda_ops.h"
#include "engine/cuda/ops/split_gemm.h"
#include "engine/cuda/skinny_gemm/skinny_gemm.h"

namespace skein::engine {
namespace {

// A share in a GPU that others hold, too.
class SharedDevice final : public Device {
 public:
  explicit SharedDevice(std::shared_ptr<CudaDevice> gpu) : gpu_(std::move(gpu)) {}
  absl::StatusOr<void*> Alloc(size_t bytes) override { return gpu_->Alloc(bytes); }
  void Free(void* pointer, size_t bytes) override { gpu_->Free(pointer, bytes); }
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    return gpu_->Copy(to, from, bytes, kind);
  }
  absl::Status Synchronize() override { return gpu_->Synchronize(); }
  absl::StatusOr<uint64_t> Mark() override { return gpu_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override { return gpu_->Done(mark); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return gpu_->MemoryInfo(); }
  bool IsHost() const override { return false; }

 private:
  const std::shared_ptr<CudaDevice> gpu_;
};

}  // namespace

absl::StatusOr<CudaBackend> MakeCudaBackend(std::string_view name,
                                            const std::function<void(const std::string&)>& warn) {
  absl::StatusOr<std::shared_ptr<CudaDevice>> gpu = OpenCudaDevice(name);
  if (!gpu.ok()) return gpu.status();
  const CudaDeviceInfo& info = (*gpu)->Info();
  absl::StatusOr<std::unique_ptr<Gemm>> gemm = MakeCublasGemm(*gpu);
  if (!gemm.ok()) return gemm.status();
  gemm = MakeSkinnyGemm(*gpu, {info.multiprocessors, info.block_shared_bytes}, *std::move(gemm));
  if (!gemm.ok()) return gemm.status();
  CudaBackend backend;
  backend.gpu = *gpu;
  backend.device = std::make_unique<SharedDevice>(*gpu);
  AttentionPolicy policy{.blocks = 2 * info.multiprocessors};
  {
    const CudaHint hint(
        "that was in the check of Hopper's attention kernel; SKEIN_WGMMA=0 disables it");
    policy.wide =
        ChooseWideKernel(gpu->get(), (*gpu)->Stream(),
                         {std::string(name), info.capability, info.multiprocessors}, warn);
  }
  auto ops = std::make_unique<CudaOps>(
      *gpu, (*gpu)->Stream(), MakeSplitGemm(*gpu, *std::move(gemm)), policy,
      [id = info.id] { RequireCuda(cudaSetDevice(id), "cudaSetDevice"); });
  backend.make_decode_runner = [gpu = *gpu, ops = ops.get()](
                                   const DecodeShape& shape,
                                   std::function<void(const std::string&)> warn)
      -> absl::StatusOr<std::unique_ptr<DecodeRunner>> {
    absl::StatusOr<std::unique_ptr<GraphRecorder>> recorder = MakeCudaGraphRecorder(gpu);
    if (!recorder.ok()) return recorder.status();
    return DecodeGraphs::Make(gpu, ops, *std::move(recorder), shape, {}, std::move(warn));
  };
  backend.ops = std::move(ops);
  return backend;
}

}  // namespace skein::engine
