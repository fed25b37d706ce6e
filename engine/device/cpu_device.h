// CpuDevice: the host's memory as a Device.
//
// Alloc maps fresh anonymous pages (zero, page aligned) and asks for transparent huge pages, so a
// KV pool of gigabytes costs nothing until it is written. Copies are done when Copy returns.
#pragma once

#include <memory>
#include <string>

#include "engine/device/device.h"

namespace skein::engine {

// The files that tell how much memory the machine and the process's cgroup have; tests pass their
// own.
struct HostMemoryPaths {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup = "/sys/fs/cgroup";  // of version 2; a missing file means no limit
};

// `total_bytes` and `free_bytes` of the machine, or of the cgroup where that is the tighter limit.
// UNAVAILABLE when meminfo cannot be read.
absl::StatusOr<MemoryUse> ReadHostMemory(const HostMemoryPaths& paths);

std::unique_ptr<Device> MakeCpuDevice();

}  // namespace skein::engine
