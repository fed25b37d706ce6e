// CpuDevice: the host's memory as a Device.
//
// Alloc maps fresh anonymous pages (zero, page aligned) and asks for transparent huge pages, so a
// KV pool of gigabytes costs nothing until it is written. Copies are done when Copy returns.
#pragma once

#include <cstddef>
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

// The whole pages of the host's memory within [base, base + bytes) are the system's again, in all
// processes that map them; who touches one later gets a zero one. `base`: anonymous memory, or a
// memory file's.
void GiveBackPages(void* base, size_t bytes);

}  // namespace skein::engine
