// Input: a byte that says whether to add a valid checksum (odd: yes), then a transport description.
// A description that parses must serialise to exactly the same text and satisfy the parser's
// guarantees.
#include <cstdint>
#include <set>
#include <string>

#include "engine/transport/description.h"
#include "scheduler/vocabulary/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 1) text = skein::engine::SealDescription(text);
  const auto parsed = skein::engine::ParseDescription(text);
  if (!parsed.ok()) return 0;
  SKEIN_CHECK(skein::engine::SerializeDescription(*parsed) == text);
  SKEIN_CHECK(parsed->regions.size() <= skein::engine::kDescriptionRegionsMax);
  std::set<uint64_t> ids;
  for (const auto& region : parsed->regions) {
    SKEIN_CHECK(region.bytes > 0 && region.address + region.bytes > region.address);
    SKEIN_CHECK(ids.insert(region.id).second);
  }
  return 0;
}
