// The CopyStream of a GPU, without CUDA's headers; a build without CUDA has none.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"

namespace skein::engine {

// `name` is "cuda:N". A stream of its own, beside those of the engine and of other processes on the
// GPU. Errors as OpenCudaDevice; INVALID_ARGUMENT in a build without CUDA.
absl::StatusOr<std::shared_ptr<CopyStream>> MakeCudaCopyStream(std::string_view name);

}  // namespace skein::engine
