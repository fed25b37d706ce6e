// CpuOps: isa × threads, and one behind StagedOps.
#include <utility>

#include "engine/device/cpu_device.h"
#include "engine/ops/conformance/ops_conformance.h"
#include "engine/ops/conformance/staged_ops.h"
#include "engine/ops/cpu/cpu_ops.h"

namespace skein::engine {
namespace {

std::unique_ptr<Ops> Make(int threads, CpuIsa isa, bool reproducible = false) {
  return std::move(MakeCpuOps({threads, isa, reproducible})).value();
}

}  // namespace

std::vector<Implementation> Implementations() {
  std::vector<Implementation> all;
  for (const CpuIsa isa :
       {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!IsSupported(isa)) continue;
    all.push_back({"cpu_reproducible_" + std::string(NameOf(isa)),
                   [=] { return Make(3, isa, true); }, [=] { return Make(2, isa, true); }});
    for (const int threads : {1, 3}) {
      all.push_back({"cpu_" + std::string(NameOf(isa)) + "_" + std::to_string(threads),
                     [=] { return Make(threads, isa); }, [=] { return Make(2, isa); }});
    }
  }
  const auto staged = [](int threads) {
    return MakeStagedOps(MakeCpuDevice(), Make(threads, CpuIsa::kAuto));
  };
  all.push_back({"cpu_staged", [=] { return staged(1); }, [=] { return staged(2); }});
  return all;
}

}  // namespace skein::engine
