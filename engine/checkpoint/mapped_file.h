// A file mapped read-only, in huge pages where that can be (huge_mapping.h). The bytes stay where
// they are until the object dies; movable, not copyable. A file that another process truncates
// while mapped ends this process (SIGBUS), as with every mapping: checkpoints are immutable while
// served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace skein::engine {

// How the bytes are used. kAgainAndAgain: they are read in place again and again, so large files
// are in memory when Open returns, in huge pages where possible. kOnce: they are copied elsewhere,
// so nothing is read in advance.
enum class MappedUse { kAgainAndAgain, kOnce };

class MappedFile {
 public:
  // NOT_FOUND when there is no such file; other codes name the path and the system's reason.
  static absl::StatusOr<MappedFile> Open(const std::string& path,
                                         MappedUse use = MappedUse::kAgainAndAgain);

  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a small text file. NOT_FOUND, or RESOURCE_EXHAUSTED above `bytes_max`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

}  // namespace skein::engine
