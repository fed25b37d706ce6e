// The PeerOpener of a GPU, by CUDA's IPC, for who includes no CUDA: in a build without CUDA there
// is none.
//
// It opens memory of cudaMalloc in other processes of the node that this one may see (one user; in
// containers a shared pid namespace), on this GPU or on one that it reaches as a peer. What CUDA
// says of it, and what it does not: to free memory that others still have open is undefined; of an
// owner that dies first it says nothing (the driver is believed to keep the memory for those who
// have it open; `tests/gpu/run` kills owners to see). So who notices the death of a peer closes
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
