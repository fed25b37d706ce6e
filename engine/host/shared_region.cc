#include "engine/host/shared_region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "engine/host/mailbox.h"
#include "engine/host/process_watch.h"

namespace skein::engine {
namespace {

std::byte* MapFile(int fd, size_t bytes) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

}  // namespace

// A name is the descriptor and the file's number, by which a later file of the same descriptor is
// told from it.
std::unique_ptr<SharedRegion> SharedRegion::Allocate(size_t bytes) {
  const int fd = memfd_create("skein-region", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat file {};
  const bool made = ftruncate(fd, static_cast<off_t>(bytes)) == 0 && fstat(fd, &file) == 0;
  std::byte* const base = made ? MapFile(fd, bytes) : nullptr;
  if (base == nullptr) {
    close(fd);
    return nullptr;
  }
  return std::unique_ptr<SharedRegion>(
      new SharedRegion(base, bytes, fd, absl::StrCat(fd, " ", file.st_ino)));
}

std::unique_ptr<SharedRegion> SharedRegion::Map(const std::string& process, const std::string& name,
                                                size_t bytes) {
  const std::optional<pid_t> pid = VisibleProcess(process);
  int number = -1;
  ino_t inode = 0;
  if (!pid.has_value() || !(std::istringstream(name) >> number >> inode)) return nullptr;
  const absl::StatusOr<int> fd = OpenOf(*pid, number);
  if (!fd.ok()) return nullptr;
  struct stat file {};
  const bool same = fstat(*fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_ino == inode &&
                    static_cast<size_t>(file.st_size) == bytes;
  std::byte* const base = same ? MapFile(*fd, bytes) : nullptr;
  close(*fd);
  if (base == nullptr) return nullptr;
  return std::unique_ptr<SharedRegion>(new SharedRegion(base, bytes, -1, ""));
}

SharedRegion::~SharedRegion() {
  munmap(base_, bytes_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace skein::engine
