#include "engine/device/testing/far_peer_opener.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace skein::engine {
namespace {

struct Handle {
  uint64_t inode = 0;
  uint64_t offset = 0;  // of the allocation in the file
  int32_t file = -1;
  int32_t zero = 0;
};
static_assert(sizeof(Handle) <= sizeof PeerPlace{}.handle);

using Key = std::pair<uint64_t, uint64_t>;  // process, allocation

struct Opened {
  std::unique_ptr<FarView> view;
  size_t count = 0;
};

// All that this process opened.
struct Table {
  std::mutex mu;
  std::map<Key, Opened> opened;
};

Table& TheTable() {
  static Table table;
  return table;
}

void Close(const Key& key) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mu);
  const auto at = table.opened.find(key);
  if (--at->second.count == 0) table.opened.erase(at);
}

std::unique_ptr<FarView> MapAllocation(const PeerPlace& place) {
  Handle handle;
  std::memcpy(&handle, place.handle, sizeof handle);
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(handle.file);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat file {};
  const bool same = fstat(fd, &file) == 0 && file.st_ino == handle.inode &&
                    handle.offset <= static_cast<uint64_t>(file.st_size) &&
                    place.allocation_bytes <= static_cast<uint64_t>(file.st_size) - handle.offset;
  auto view = same ? std::make_unique<FarView>(fd, handle.offset, place.allocation_bytes) : nullptr;
  close(fd);
  return view;
}

class FarPeerOpener final : public PeerOpener {
 public:
  explicit FarPeerOpener(std::shared_ptr<FarDevice> device) : device_(std::move(device)) {}

  std::string Name() const override { return "far-ipc"; }
  uint64_t Process() const override { return static_cast<uint64_t>(getpid()); }

  absl::StatusOr<PeerPlace> Export(const void* data) override {
    if (!device_->Owns(data)) return absl::UnavailableError("no memory of this device");
    const FarDevice::Allocation allocation = device_->AllocationOf(data);
    struct stat file {};
    if (fstat(device_->file(), &file) != 0) return absl::UnavailableError("fstat");
    const Handle handle{.inode = file.st_ino, .offset = allocation.offset, .file = device_->file()};
    const auto* const base = device_->Base() + allocation.offset;
    PeerPlace place{.process = Process(),
                    .allocation = reinterpret_cast<uint64_t>(base),
                    .allocation_bytes = allocation.bytes,
                    .offset = static_cast<uint64_t>(static_cast<const std::byte*>(data) - base)};
    std::memcpy(place.handle, &handle, sizeof handle);
    return place;
  }

  absl::StatusOr<std::shared_ptr<std::byte>> Open(const PeerPlace& place) override {
    if (place.offset >= place.allocation_bytes) return absl::UnavailableError("not a place");
    if (place.process == Process()) {  // as CUDA: it cannot open its own
      auto* const own = reinterpret_cast<std::byte*>(place.allocation) + place.offset;
      if (NearOfAny(own) == own) return absl::UnavailableError("no memory of a device");
      return std::shared_ptr<std::byte>(own, [](std::byte*) {});
    }
    const Key key(place.process, place.allocation);
    Table& table = TheTable();
    const std::lock_guard lock(table.mu);
    auto at = table.opened.find(key);
    if (at == table.opened.end()) {
      auto view = MapAllocation(place);
      if (view == nullptr) return absl::UnavailableError("no such memory");
      at = table.opened.emplace(key, Opened{std::move(view), 0}).first;
    }
    ++at->second.count;
    return std::shared_ptr<std::byte>(at->second.view->far() + place.offset,
                                      [key](std::byte*) { Close(key); });
  }

 private:
  const std::shared_ptr<FarDevice> device_;
};

}  // namespace

std::unique_ptr<PeerOpener> MakeFarPeerOpener(std::shared_ptr<FarDevice> device) {
  return std::make_unique<FarPeerOpener>(std::move(device));
}

size_t FarAllocationsOpen() {
  Table& table = TheTable();
  const std::lock_guard lock(table.mu);
  return table.opened.size();
}

}  // namespace skein::engine
