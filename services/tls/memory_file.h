// MemoryFile: a file that is only in memory and has a path, for libraries that read a secret from a
// path. Its content is replaced as a whole: a reader gets the old one or the new one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace skein::services::tls {

class MemoryFile {
 public:
  MemoryFile() = default;
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // The file has this content from here on, and `time_s` as the time of its last change.
  // UNAVAILABLE: no memory, or no descriptor left. The path stays the same.
  absl::Status Put(std::string_view content, int64_t time_s);

  // For this process alone. REQUIRES: Put has been OK.
  std::string path() const;

 private:
  int fd_ = -1;
};

}  // namespace skein::services::tls
