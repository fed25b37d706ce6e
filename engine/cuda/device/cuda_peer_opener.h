// The PeerOpener of a GPU, by CUDA's IPC, without CUDA's headers; a build without CUDA has none.
//
// It opens memory of cudaMalloc in other processes of the node that this one may see (one user; in
// containers a shared pid namespace), on this GPU or on one that it reaches as a peer. CUDA leaves
// undefined what happens if memory is freed while others have it open. It says nothing about an
// owner that dies first: the driver is believed to keep the memory until the others close it
// (`tests/gpu/run` kills owners to see). So a process that notices the death of a peer closes what
// it opened.
// what it opened.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/device/peer_opener.h"

namespace skein::engine {

// `name` is "cuda:N". Errors as OpenCudaDevice; UNAVAILABLE where the GPU or the driver has no IPC;
// INVALID_ARGUMENT in a build without CUDA.
absl::StatusOr<std::shared_ptr<PeerOpener>> MakeCudaPeerOpener(std::string_view name);

}  // namespace skein::engine
