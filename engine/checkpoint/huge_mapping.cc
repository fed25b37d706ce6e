#include "engine/checkpoint/huge_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace skein::engine {
namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kWorthwhile = 16 * kHuge;  // a smaller file is mapped plainly

// Maps at an address that is a multiple of kHuge.
void* MapAligned(int fd, size_t size) {
  void* reserved =
      mmap(nullptr, size + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  auto* begin = static_cast<uint8_t*>(reserved);
  auto* aligned = begin + (kHuge - reinterpret_cast<uintptr_t>(begin) % kHuge) % kHuge;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  uint8_t* end = aligned + (size + page - 1) / page * page;
  if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
  if (begin + size + kHuge > end) {
    munmap(end, static_cast<size_t>(begin + size + kHuge - end));
  }
  void* mapped = mmap(aligned, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(aligned, static_cast<size_t>(end - aligned));
    errno = error;
    return MAP_FAILED;
  }
  madvise(mapped, size, MADV_HUGEPAGE);
  return mapped;
}

// Touches each huge page of the first `size` bytes, which reads them from the file.
void Touch(const void* mapped, size_t size) {
  const auto* bytes = static_cast<const volatile uint8_t*>(mapped);
  for (size_t offset = 0; offset < size; offset += kHuge) static_cast<void>(bytes[offset]);
}

// Drops the cached pages of the first `size` bytes that nobody maps, and maps the file anew.
void* DropAndMap(int fd, size_t size, size_t dropped, void* mapped) {
  munmap(mapped, size);
  fdatasync(fd);  // a dirty page cannot be dropped
  posix_fadvise(fd, 0, static_cast<off_t>(dropped), POSIX_FADV_DONTNEED);
  void* again = MapAligned(fd, size);
  if (again != MAP_FAILED) Touch(again, dropped);
  return again;
}

}  // namespace

void* MapInHugePages(int fd, size_t size) {
  void* mapped = MapAligned(fd, size);
  if (mapped == MAP_FAILED || size < kWorthwhile) return mapped;
  Touch(mapped, size);
  const size_t whole = size / kHuge * kHuge;
  if (HugeBytesMapped(mapped) >= whole / 10 * 9) return mapped;
  // One huge page shows whether this kernel makes them of files.
  if (HugeBytesMapped(mapped) == 0) {
    mapped = DropAndMap(fd, size, kHuge, mapped);
    if (mapped == MAP_FAILED || HugeBytesMapped(mapped) == 0) return mapped;
  }
  return DropAndMap(fd, size, size, mapped);
}

size_t HugeBytesMapped(const void* address) {
  char start[32];
  std::snprintf(start, sizeof(start), "%" PRIxPTR "-", reinterpret_cast<uintptr_t>(address));
  std::ifstream smaps("/proc/self/smaps");
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(start)) ours = true;
    size_t kib = 0;
    if (ours && std::sscanf(line.c_str(), "FilePmdMapped: %zu kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

}  // namespace skein::engine
