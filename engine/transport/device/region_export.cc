#include "engine/transport/device/region_export.h"

#include <cstring>
#include <type_traits>

namespace skein::engine {
namespace {

// Within a node, so bytes are as they lie in memory.
struct Sealed {
  char magic[8] = {'S', 'K', 'D', 'E', 'V', 'M', 'E', 'M'};
  RegionExport region;
};
static_assert(std::is_trivially_copyable_v<Sealed>);
static_assert(sizeof(Sealed) == 8 + sizeof(PeerPlace) + 16, "no padding");

}  // namespace

void AppendExport(const RegionExport& region, std::string* key) {
  Sealed sealed;
  sealed.region = region;
  key->append(reinterpret_cast<const char*>(&sealed), sizeof sealed);
}

std::optional<RegionExport> TakeExport(std::string* key) {
  if (key->size() < sizeof(Sealed)) return std::nullopt;
  const size_t begin = key->size() - sizeof(Sealed);
  Sealed sealed;
  const std::string magic(sealed.magic, sizeof sealed.magic);
  std::memcpy(&sealed, key->data() + begin, sizeof sealed);
  if (std::string(sealed.magic, sizeof sealed.magic) != magic) return std::nullopt;
  key->resize(begin);
  return sealed.region;
}

bool IsSound(const RegionExport& region, uint64_t address, uint64_t bytes) {
  const PeerPlace& place = region.place;
  return region.address == address && region.bytes == bytes &&
         place.offset <= place.allocation_bytes && bytes <= place.allocation_bytes - place.offset;
}

}  // namespace skein::engine
