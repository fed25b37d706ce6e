// Step profiles that come with the simulator.
#pragma once

#include <string_view>
#include <vector>

#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

//   llama3-70b-h200-bf16  Flying Serving's shape: an instance is two devices
//   llama3-70b-h200-fp8   Shift Parallelism's: an instance is one device
//   llama3-8b             in bf16 on H200; nothing of it is fitted to points of its own
// Peaks are the papers' (H200: 1,979 TFLOP/s in fp8, 4.8 TB/s, 900 GB/s of NVLink in both
// directions); bf16 has half of fp8's. Shapes are Llama 3's. usable_bytes follows from Flying's
// table 2. `fitted` is from bench/formations:papers --fit.
const std::vector<StepProfile>& BuiltinStepProfiles();
// Null: there is none with this name.
const StepProfile* FindStepProfile(std::string_view name);

}  // namespace skein::scheduler
