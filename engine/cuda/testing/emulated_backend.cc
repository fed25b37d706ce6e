#include "engine/cuda/testing/emulated_backend.h"

#include <utility>

#include "engine/cuda/emulator/recording.h"
#include "engine/cuda/ops/split_gemm.h"
#include "engine/cuda/skinny_gemm/skinny_gemm.h"
#include "engine/device/cpu_device.h"
#include "scheduler/vocabulary/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace skein::engine {
namespace {

constexpr size_t kPageBytes = 4096;
// As of a Hopper with four multiprocessors: a grid for decode graphs has two blocks for each, idle
// or not.
constexpr int kAttentionBlocks = 8;
constexpr SkinnyGemmPolicy kSkinnyGemm = {4, 227 << 10};

// Memory of Alloc past `bytes` must not be touched.
void Fence(const void* pointer, size_t bytes, bool closed) {
#if defined(__SANITIZE_ADDRESS__)
  const auto* end = static_cast<const std::byte*>(pointer) + bytes;
  const size_t rest = (kPageBytes - bytes % kPageBytes) % kPageBytes;
  if (closed) {
    __asan_poison_memory_region(end, rest);
  } else {
    __asan_unpoison_memory_region(end, rest);
  }
#else
  static_cast<void>(pointer), static_cast<void>(bytes), static_cast<void>(closed);
#endif
}

class EmulatedCudaDevice final : public Device {
 public:
  absl::StatusOr<void*> Alloc(size_t bytes) override {
    CheckNotRecording();
    absl::StatusOr<void*> pointer = host_->Alloc(bytes);
    if (pointer.ok()) Fence(*pointer, bytes, true);
    return pointer;
  }
  void Free(void* pointer, size_t bytes) override {
    CheckNotRecording();
    if (pointer != nullptr) Fence(pointer, bytes, false);
    host_->Free(pointer, bytes);
  }
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    CheckNotRecording();
    return host_->Copy(to, from, bytes, kind);
  }
  absl::Status Synchronize() override {
    CheckNotRecording();
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Mark() override {
    CheckNotRecording();
    return 0;
  }
  absl::StatusOr<bool> Done(uint64_t) override { return true; }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return host_->MemoryInfo(); }
  bool IsHost() const override { return false; }

 private:
  static void CheckNotRecording() {
    SKEIN_CHECK_MSG(!simt::IsRecording(), "the device is used while work is recorded");
  }

  const std::unique_ptr<Device> host_ = MakeCpuDevice();
};

class EmulatedGraph final : public RecordedGraph {
 public:
  explicit EmulatedGraph(std::unique_ptr<simt::Launches> launches)
      : launches_(std::move(launches)) {}
  absl::Status Launch() override {
    for (const auto& launch : *launches_) launch();
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<simt::Launches> launches_;
};

class EmulatedRecorder final : public GraphRecorder {
 public:
  absl::StatusOr<CudaStream> Begin() override {
    launches_ = std::make_unique<simt::Launches>();
    return simt::BeginRecording(launches_.get());
  }
  absl::StatusOr<std::unique_ptr<RecordedGraph>> End() override {
    simt::EndRecording();
    return std::make_unique<EmulatedGraph>(std::move(launches_));
  }

 private:
  std::unique_ptr<simt::Launches> launches_;
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedCudaDevice() { return std::make_unique<EmulatedCudaDevice>(); }

std::unique_ptr<GraphRecorder> MakeEmulatedGraphRecorder() {
  return std::make_unique<EmulatedRecorder>();
}

std::unique_ptr<CudaOps> MakeEmulatedCudaOps(WideKernel wide) {
  auto gemm = MakeSkinnyGemm(MakeEmulatedCudaDevice(), kSkinnyGemm, MakePlainGemm());
  SKEIN_CHECK(gemm.ok());
  return std::make_unique<CudaOps>(
      MakeEmulatedCudaDevice(), nullptr, MakeSplitGemm(MakeEmulatedCudaDevice(), *std::move(gemm)),
      AttentionPolicy{.blocks = kAttentionBlocks, .wide = wide}, [] {});
}

}  // namespace skein::engine
