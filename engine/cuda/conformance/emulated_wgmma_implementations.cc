// CudaOps on the emulator as it is on Hopper, for attention's suite, in two orders of the kernels'
// threads.
#include <functional>
#include <memory>
#include <vector>

#include "engine/cuda/emulator/grid.h"
#include "engine/cuda/testing/emulated_backend.h"
#include "engine/ops/conformance/ops_conformance.h"
#include "engine/ops/conformance/staged_ops.h"

namespace skein::engine {

std::vector<Implementation> Implementations() {
  const auto make = [](simt::Order order) {
    return [order] {
      simt::SetOrder(order);
      return MakeStagedOps(MakeEmulatedCudaDevice(), MakeEmulatedCudaOps(WideKernel::kWgmma));
    };
  };
  return {{"cuda_emulated_wgmma", make(simt::Order::kShuffled), make(simt::Order::kForward),
           /*attends_in_f16=*/true}};
}

}  // namespace skein::engine
