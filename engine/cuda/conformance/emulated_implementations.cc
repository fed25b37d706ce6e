// CudaOps on the emulator; what must be the same however work is divided is run in two orders of
// the kernels' threads.
#include "engine/cuda/emulator/grid.h"
#include "engine/cuda/testing/emulated_backend.h"
#include "engine/ops/conformance/ops_conformance.h"
#include "engine/ops/conformance/staged_ops.h"

namespace skein::engine {

std::vector<Implementation> Implementations() {
  const auto make = [](simt::Order order) {
    return [order] {
      simt::SetOrder(order);
      return MakeStagedOps(MakeEmulatedCudaDevice(), MakeEmulatedCudaOps());
    };
  };
  return {{"cuda_emulated", make(simt::Order::kBackward), make(simt::Order::kForward),
           /*attends_in_f16=*/true}};
}

}  // namespace skein::engine
