// The memory of a UcxWire: regions of this process, and peers' regions mapped into it. Internal to
// this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/transport/device/device_inbox.h"
#include "engine/transport/ucx/ucx_endpoint.h"
#include "engine/transport/wire.h"

namespace skein::engine {

class UcxMemory {
 public:
  // `shared`: what it allocates can be mapped by processes that see this one. `inbox` outlives
  // this; without one all memory is the host's.
  explicit UcxMemory(bool shared, DeviceInbox* inbox = nullptr) : shared_(shared), inbox_(inbox) {}
  ~UcxMemory() { UnmapAll(); }
  UcxMemory(const UcxMemory&) = delete;

  // As Wire's. A region's key is its handle, then its name if it can be mapped. The handle says
  // whether it is a device's.
  absl::StatusOr<WireMapping> Map(void* base, size_t bytes);
  void Unmap(uint64_t mapping);
  void UnmapAll();

  // Where a message may read or write `bytes`; null if that is not inside a region.
  std::byte* Place(uint64_t mapping, uint64_t address, uint64_t bytes) const;

  // Writes a put's data to its fragments; false, and nothing is written, unless each lies inside a
  // region and together they take up all of the data. What goes to a device arrives when the inbox
  // has done *mark (else 0).
  bool Scatter(std::span<const Fragment> fragments, std::span<const std::byte> data,
               uint64_t* mark) const;

 private:
  struct Mapping {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
    bool own = false;  // mapped by this, and by it alone
    std::unique_ptr<SharedRegion> shared;
  };

  absl::StatusOr<WireMapping> Allocate(size_t bytes);
  bool FitsRegions(std::span<const Fragment> fragments, size_t bytes) const;

  const bool shared_;
  DeviceInbox* const inbox_;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, Mapping> mappings_;
};

// Of a mapping: whether it is of a device's memory.
bool IsDeviceMapping(uint64_t mapping);

// A peer's region as its key describes it, mapped into this process if that can be.
// INVALID_ARGUMENT for what is no key.
absl::StatusOr<Imported> ImportRegion(const Endpoint& endpoint, const DescribedRegion& region);

}  // namespace skein::engine
