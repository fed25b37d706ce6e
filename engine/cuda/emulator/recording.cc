#include "engine/cuda/emulator/recording.h"

#include <utility>

#include "scheduler/vocabulary/check.h"

namespace skein::engine::simt {
namespace {

thread_local Launches* recording = nullptr;

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

void RunOrRecord(CudaStream stream, std::function<void()> launch) {
  if (stream == nullptr) return launch();
  SKEIN_CHECK_MSG(recording != nullptr && stream == StreamOf(recording),
                  "a launch on a stream that records no more");
  recording->push_back(std::move(launch));
}

}  // namespace skein::engine::simt
