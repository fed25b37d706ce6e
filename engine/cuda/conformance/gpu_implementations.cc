// CudaOps on the first GPU.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "engine/cuda/engine/cuda_backend.h"
#include "engine/ops/conformance/ops_conformance.h"
#include "engine/ops/conformance/staged_ops.h"

namespace skein::engine {
namespace {

std::unique_ptr<Ops> MakeOnGpu() {
  absl::StatusOr<CudaBackend> backend = MakeCudaBackend(
      "cuda:0", [](const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); });
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    std::abort();
  }
  return MakeStagedOps(std::move(backend->device), std::move(backend->ops));
}

}  // namespace

std::vector<Implementation> Implementations() {
  return {{"cuda", MakeOnGpu, MakeOnGpu, /*attends_in_f16=*/true}};
}

}  // namespace skein::engine
