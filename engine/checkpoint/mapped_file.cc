#include "engine/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/checkpoint/huge_mapping.h"

namespace skein::engine {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  const std::string text = path + ": " + what + ": " + std::strerror(errno);
  return errno == ENOENT ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path, MappedUse use) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "open");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::FailedPreconditionError(path + ": not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return MappedFile(nullptr, 0);
  }
  void* data = use == MappedUse::kOnce ? mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)
                                       : MapInHugePages(fd, size);
  const absl::Status mapped = data == MAP_FAILED ? SystemError(path, "mmap") : absl::OkStatus();
  close(fd);
  if (!mapped.ok()) return mapped;
  return MappedFile(static_cast<const uint8_t*>(data), size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::span<const uint8_t> bytes = file->bytes();
  if (bytes.size() > bytes_max) {
    return absl::ResourceExhaustedError(path + ": " + std::to_string(bytes.size()) +
                                        " bytes, at most " + std::to_string(bytes_max));
  }
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace skein::engine
