#include "engine/device/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// The kB of a line "Name:   123 kB".
std::optional<size_t> MeminfoBytes(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    size_t kilobytes = 0;
    if (words >> key >> kilobytes && key == name + ":") return kilobytes * 1024;
  }
  return std::nullopt;
}

// The number a cgroup file holds; nothing when it is absent or says "max".
std::optional<size_t> CgroupBytes(const std::string& path) {
  std::ifstream file(path);
  size_t bytes = 0;
  if (file >> bytes) return bytes;
  return std::nullopt;
}

class CpuDevice final : public Device {
 public:
  absl::StatusOr<void*> Alloc(size_t bytes) override {
    const size_t mapped = DeviceBytes(bytes);
    void* pointer =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED) {
      const auto use = MemoryInfo();
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot map ", bytes, " bytes of host memory; ",
                       use.ok() ? use->free_bytes : 0, " bytes are free"));
    }
    // Advice only: kernels without huge pages refuse it, and nothing depends on it.
    if (mapped >= kHugePageBytes) madvise(pointer, mapped, MADV_HUGEPAGE);
    return pointer;
  }

  void Free(void* pointer, size_t bytes) override {
    if (pointer != nullptr) munmap(pointer, DeviceBytes(bytes));
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind) override {
    if (bytes > 0) std::memmove(to, from, bytes);
    return absl::OkStatus();
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Mark() override { return 0; }
  absl::StatusOr<bool> Done(uint64_t) override { return true; }

  absl::StatusOr<MemoryUse> MemoryInfo() override { return ReadHostMemory({}); }
  bool IsHost() const override { return true; }
};

}  // namespace

absl::StatusOr<MemoryUse> ReadHostMemory(const HostMemoryPaths& paths) {
  const auto total = MeminfoBytes(paths.meminfo, "MemTotal");
  const auto available = MeminfoBytes(paths.meminfo, "MemAvailable");
  if (!total || !available) {
    return absl::UnavailableError(absl::StrCat(paths.meminfo, " has no MemTotal and MemAvailable"));
  }
  MemoryUse use{*total, *available};
  const auto limit = CgroupBytes(paths.cgroup + "/memory.max");
  if (limit && *limit < use.total_bytes) {
    const size_t used = CgroupBytes(paths.cgroup + "/memory.current").value_or(0);
    use.total_bytes = *limit;
    use.free_bytes = std::min(use.free_bytes, *limit - std::min(*limit, used));
  }
  return use;
}

void GiveBackPages(void* base, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(base);
  const uintptr_t first = (begin + kDevicePageBytes - 1) / kDevicePageBytes * kDevicePageBytes;
  const uintptr_t end = (begin + bytes) / kDevicePageBytes * kDevicePageBytes;
  if (first >= end) return;
  void* const pages = static_cast<std::byte*>(base) + (first - begin);
  // MADV_REMOVE frees a file's memory for all processes, and fails for anonymous memory, which is
  // this process's alone.
  if (madvise(pages, end - first, MADV_REMOVE) != 0) madvise(pages, end - first, MADV_DONTNEED);
}

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<CpuDevice>(); }

}  // namespace skein::engine
