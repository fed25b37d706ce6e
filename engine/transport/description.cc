#include "engine/transport/description.h"

#include <concepts>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr uint32_t kMagic = 0x52544b53;  // "SKTR"
constexpr uint16_t kVersion = 2;
constexpr size_t kChecksumBytes = 8;

uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

template <std::unsigned_integral T>
void Append(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

void AppendBytes(std::string_view bytes, std::string* out) {
  Append(static_cast<uint32_t>(bytes.size()), out);
  out->append(bytes);
}

// Takes values off the front of the text; false once anything was missing.
class Cursor {
 public:
  explicit Cursor(std::string_view rest) : rest_(rest) {}

  template <std::unsigned_integral T>
  bool Take(T* value) {
    if (rest_.size() < sizeof(T)) return false;
    *value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      *value = static_cast<T>(*value | T{static_cast<unsigned char>(rest_[i])} << (8 * i));
    }
    rest_.remove_prefix(sizeof(T));
    return true;
  }

  bool TakeBytes(size_t bytes_max, std::string* bytes) {
    uint32_t size = 0;
    if (!Take(&size) || size > bytes_max || size > rest_.size()) return false;
    bytes->assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return true;
  }

  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("transport description: ", absl::string_view(what.data(), what.size())));
}

absl::Status TakeHeader(Cursor* cursor, Description* description) {
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t kind = 0;
  if (!cursor->Take(&magic) || magic != kMagic) return Malformed("bad magic");
  if (!cursor->Take(&version) || version != kVersion) return Malformed("unknown version");
  if (!cursor->Take(&kind) || kind < 1 || kind > 2) return Malformed("unknown kind");
  description->kind = static_cast<TransportKind>(kind);
  if (!cursor->Take(&description->incarnation)) return Malformed("no incarnation");
  if (!cursor->Take(&description->grant.value)) return Malformed("no grant");
  if (!cursor->TakeBytes(kWorkerAddressBytesMax, &description->worker_address) ||
      description->worker_address.empty()) {
    return Malformed("bad worker address");
  }
  return absl::OkStatus();
}

absl::Status TakeRegion(Cursor* cursor, DescribedRegion* region) {
  if (!cursor->Take(&region->id) || !cursor->Take(&region->address) ||
      !cursor->Take(&region->bytes) || !cursor->TakeBytes(kRegionKeyBytesMax, &region->key)) {
    return Malformed("truncated region");
  }
  if (region->id == 0) return Malformed("region id 0");
  if (region->bytes == 0) return Malformed("empty region");
  if (region->address == 0 || region->address > UINT64_MAX - region->bytes) {
    return Malformed("impossible region address");
  }
  return absl::OkStatus();
}

absl::Status TakeRegions(Cursor* cursor, Description* description) {
  uint32_t count = 0;
  if (!cursor->Take(&count) || count > kDescriptionRegionsMax) return Malformed("bad region count");
  std::set<uint64_t> ids;
  for (uint32_t i = 0; i < count; ++i) {
    DescribedRegion region;
    if (auto status = TakeRegion(cursor, &region); !status.ok()) return status;
    if (!ids.insert(region.id).second) return Malformed("repeated region id");
    description->regions.push_back(std::move(region));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SealDescription(std::string body) {
  Append(Fnv1a(body), &body);
  return body;
}

std::string SerializeDescription(const Description& description) {
  SKEIN_CHECK(description.regions.size() <= kDescriptionRegionsMax);
  SKEIN_CHECK(description.worker_address.size() <= kWorkerAddressBytesMax);
  std::string out;
  Append(kMagic, &out);
  Append(kVersion, &out);
  Append(static_cast<uint16_t>(description.kind), &out);
  Append(description.incarnation, &out);
  Append(description.grant.value, &out);
  AppendBytes(description.worker_address, &out);
  Append(static_cast<uint32_t>(description.regions.size()), &out);
  for (const DescribedRegion& region : description.regions) {
    SKEIN_CHECK(region.key.size() <= kRegionKeyBytesMax);
    Append(region.id, &out);
    Append(region.address, &out);
    Append(region.bytes, &out);
    AppendBytes(region.key, &out);
  }
  return SealDescription(std::move(out));
}

absl::StatusOr<Description> ParseDescription(std::string_view text) {
  if (text.size() < kChecksumBytes) return Malformed("too short");
  const std::string_view body = text.substr(0, text.size() - kChecksumBytes);
  uint64_t checksum = 0;
  Cursor(text.substr(body.size())).Take(&checksum);
  if (checksum != Fnv1a(body)) return Malformed("checksum mismatch");
  Cursor cursor(body);
  Description description;
  if (auto status = TakeHeader(&cursor, &description); !status.ok()) return status;
  if (auto status = TakeRegions(&cursor, &description); !status.ok()) return status;
  if (!cursor.empty()) return Malformed("trailing bytes");
  return description;
}

std::string DescribeUnder(const std::string& text, GrantId grant) {
  absl::StatusOr<Description> description = ParseDescription(text);
  SKEIN_CHECK_MSG(description.ok(), description.status().ToString().c_str());
  description->grant = grant;
  return SerializeDescription(*description);
}

}  // namespace skein::engine
