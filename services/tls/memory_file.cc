#include "services/tls/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::services::tls {
namespace {

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status Fill(int fd, std::string_view content, int64_t time_s) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed("write to memory");
    content.remove_prefix(static_cast<size_t>(written));
  }
  const timespec time{.tv_sec = time_s, .tv_nsec = 0};
  const timespec times[2] = {time, time};
  return futimens(fd, times) == 0 ? absl::OkStatus() : Failed("futimens");
}

}  // namespace

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status MemoryFile::Put(std::string_view content, int64_t time_s) {
  const int made = memfd_create("tls", MFD_CLOEXEC);
  if (made < 0) return Failed("memfd_create");
  if (absl::Status s = Fill(made, content, time_s); !s.ok()) {
    close(made);
    return s;
  }
  if (fd_ < 0) {
    fd_ = made;
    return absl::OkStatus();
  }
  // Opening the path gives the file that the descriptor is of at that moment.
  const int replaced = dup3(made, fd_, O_CLOEXEC);
  absl::Status status = replaced < 0 ? Failed("dup3") : absl::OkStatus();
  close(made);
  return status;
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

}  // namespace skein::services::tls
