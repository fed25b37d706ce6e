// Streams that note their launches: what stands for a captured CUDA graph on the emulator. Used by
// one OS thread.
#pragma once

#include <functional>
#include <vector>

#include "engine/cuda/simt/stream.h"

namespace skein::engine::simt {

// Launches in their order, with the arguments they were given.
using Launches = std::vector<std::function<void()>>;

// A stream whose launches go to the end of `launches`, until EndRecording. One at a time; ends the
// process otherwise.
CudaStream BeginRecording(Launches* launches);
void EndRecording();
// Between the two, on this OS thread.
bool IsRecording();

// Runs the launch, or notes it when `stream` is not null. Ends the process when that is not the
// stream of this thread's recording. A kernel's code is loaded when it first runs, which a GPU may
// refuse while work is recorded: a launch that is noted before `kernel` ever ran is LaunchFailed.
void RunOrRecord(CudaStream stream, const void* kernel, std::function<void()> launch);

}  // namespace skein::engine::simt
