// The regions of a wire that lie in a device's memory. Internal to engine/transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace skein::engine {

class DeviceRegions {
 public:
  // By the wire's mapping.
  void Add(uint64_t mapping, const void* base, size_t bytes) {
    regions_[mapping] = {static_cast<const std::byte*>(base), bytes};
  }
  void Remove(uint64_t mapping) {
    regions_.erase(mapping);
    last_ = {};
  }

  // Looks first at the region that was found last, which usually is the one.
  bool Hold(const std::byte* pointer) {
    if (last_.Holds(pointer)) return true;
    for (const auto& [mapping, region] : regions_) {
      if (!region.Holds(pointer)) continue;
      last_ = region;
      return true;
    }
    return false;
  }

 private:
  struct Extent {
    const std::byte* base = nullptr;
    size_t bytes = 0;
    bool Holds(const std::byte* pointer) const { return pointer >= base && pointer < base + bytes; }
  };
  std::map<uint64_t, Extent> regions_;
  Extent last_;
};

}  // namespace skein::engine
