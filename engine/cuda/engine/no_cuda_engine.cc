#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/cuda/engine/cuda_engine.h"

namespace skein::engine {
namespace {

absl::Status NoCuda(std::string_view device) {
  const absl::StatusOr<int> id = ParseCudaDevice(device);
  if (!id.ok()) return id.status();
  return absl::InvalidArgumentError(
      "device: '" + std::string(device) +
      "': this binary was built without CUDA; rebuild it with bazel build --config=cuda");
}

}  // namespace

absl::StatusOr<CudaEngine> MakeCudaEngine(const std::string&, const ModelEngineOptions& options,
                                          int) {
  return NoCuda(options.device_name);
}

absl::StatusOr<std::shared_ptr<CopyStream>> MakeCudaCopyStream(std::string_view name) {
  return NoCuda(name);
}

absl::StatusOr<std::shared_ptr<PeerOpener>> MakeCudaPeerOpener(std::string_view name) {
  return NoCuda(name);
}

}  // namespace skein::engine
