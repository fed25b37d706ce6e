// The memory of a UcxWire: the regions of this process, and regions of peers that are mapped into
// it. Internal to engine/transport/ucx.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/transport/device/device_inbox.h"
#include "engine/transport/ucx/ucx_endpoint.h"
#include "engine/transport/ucx/ucx_rma.h"
#include "engine/transport/wire.h"

namespace skein::engine {

class UcxMemory {
 public:
  // `shared`: other processes of the host can map the regions that it allocates. `inbox` outlives
  // this; without an inbox all memory is the host's. `rma`: peers put into memory of the host by
  // RMA; UnmapAll comes before the end of this plane. Null: they do not.
  explicit UcxMemory(bool shared, DeviceInbox* inbox = nullptr, UcxPlane* rma = nullptr)
      : shared_(shared), inbox_(inbox), rma_(rma) {}
  ~UcxMemory() { UnmapAll(); }
  UcxMemory(const UcxMemory&) = delete;

  // As in Wire. A region's key is its handle, then of memory of the host the length of its name,
  // its name if it can be mapped, and its key of RMA if it has one. The handle says whether the
  // region is device memory.
  absl::StatusOr<WireMapping> Map(void* base, size_t bytes);
  void Unmap(uint64_t mapping);
  void UnmapAll();

  // The address at which a message may read or write `bytes`; null if that is not inside a region.
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
    std::unique_ptr<RmaMemory> rma;
  };

  absl::StatusOr<WireMapping> Allocate(size_t bytes);
  WireMapping Keep(Mapping mapping);
  bool FitsRegions(std::span<const Fragment> fragments, size_t bytes) const;

  const bool shared_;
  DeviceInbox* const inbox_;
  UcxPlane* const rma_;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, Mapping> mappings_;
};

// Whether a mapping is of device memory.
bool IsDeviceMapping(uint64_t mapping);

// The region that a peer's key describes, mapped into this process if possible. INVALID_ARGUMENT if
// the bytes are not a key.
absl::StatusOr<Imported> ImportRegion(const Endpoint& endpoint, const DescribedRegion& region);

}  // namespace skein::engine
