// CpuOps: Ops on the host's cores. oneDNN for products with many rows; own kernels for the rest.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/ops/cpu/cpu_isa.h"
#include "engine/ops/ops.h"

namespace skein::engine {

struct CpuOpsOptions {
  int threads = 1;  // in all: the caller is one of them
  // For our own kernels. oneDNN chooses for itself among what the CPU has, but multiplies in bf16
  // only under kAvx512Bf16.
  CpuIsa isa = CpuIsa::kAuto;
  // Whether what is computed for a row depends on its own sequence alone, bit for bit, however the
  // sequence is cut into calls and its model among ranks (docs/reproducibility.md).
  bool reproducible = false;
};

// Whether `reproducible` was measured to cost at most 5 % of the time of a prefill and of a decode
// step, of one stream or several, by one or two threads on a CPU of this kind
// (docs/reproducibility.md). False too where that was not measured. kAuto: of the best that this
// CPU has.
bool ReproducibleCostsLittle(CpuIsa isa);

// INVALID_ARGUMENT: threads < 1, or the CPU lacks the isa.
absl::StatusOr<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsOptions& options);

}  // namespace skein::engine
