// The reference and CpuOps.
#include <utility>

#include "engine/device/cpu_device.h"
#include "engine/model/testing/model_backends.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"

namespace skein::engine {

std::vector<ModelBackend> ModelBackends() {
  const auto reference = [](const std::string& dir, const ModelEngineOptions& options) {
    return MakeModelEngine(dir, std::make_unique<ReferenceOps>(), MakeCpuDevice(), options);
  };
  const auto cpu = [](const std::string& dir, const ModelEngineOptions& options) {
    return MakeModelEngine(dir, MakeCpuOps({.threads = 2, .isa = CpuIsa::kAuto}).value(),
                           MakeCpuDevice(), options);
  };
  return {{"Reference", reference, ModelBackend::Pace::kSlow}, {"Cpu", cpu}};
}

}  // namespace skein::engine
