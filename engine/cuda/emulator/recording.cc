#include "engine/cuda/emulator/recording.h"

#include <mutex>
#include <set>
#include <utility>

#include "engine/cuda/simt/launch_failures.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

thread_local Launches* recording = nullptr;

// Kernels that have run in this process.
class LoadedKernels {
 public:
  void Add(const void* kernel) {
    const std::lock_guard lock(mu_);
    kernels_.insert(kernel);
  }
  bool Has(const void* kernel) {
    const std::lock_guard lock(mu_);
    return kernels_.contains(kernel);
  }

 private:
  std::mutex mu_;
  std::set<const void*> kernels_;
};

LoadedKernels& Loaded() {
  static LoadedKernels loaded;
  return loaded;
}

CudaStream StreamOf(Launches* launches) { return reinterpret_cast<CudaStream>(launches); }

}  // namespace

CudaStream BeginRecording(Launches* launches) {
  SKEIN_CHECK_MSG(recording == nullptr, "a recording begins within another");
  recording = launches;
  return StreamOf(launches);
}

void EndRecording() {
  SKEIN_CHECK_MSG(recording != nullptr, "no recording has begun");
  recording = nullptr;
}

bool IsRecording() { return recording != nullptr; }

void RunOrRecord(CudaStream stream, const void* kernel, std::function<void()> launch) {
  if (stream == nullptr) {
    Loaded().Add(kernel);
    return launch();
  }
  SKEIN_CHECK_MSG(recording != nullptr && stream == StreamOf(recording),
                  "a launch on a stream that records no more");
  if (!Loaded().Has(kernel)) return LaunchFailed("a kernel's first launch while work is recorded");
  recording->push_back(std::move(launch));
}

}  // namespace skein::engine::simt
