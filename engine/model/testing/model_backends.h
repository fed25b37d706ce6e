// The backends on which suites of whole models run. A test links the suite and one library that
// defines ModelBackends(): //engine/model/testing:cpu_backends,
// //engine/cuda/testing:model_backends (a GPU) or its twin on the emulator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model/model_engine.h"

namespace skein::engine {

struct ModelBackend {
  std::string name;
  // The engine as this backend runs it; `options` say nothing of the device.
  std::function<absl::StatusOr<std::unique_ptr<Engine>>(const std::string& model_dir,
                                                        ModelEngineOptions options)>
      make;
  // What a test has time for.
  enum class Pace { kFast, kSlow, kVerySlow } pace = Pace::kFast;
};

std::vector<ModelBackend> ModelBackends();

}  // namespace skein::engine
