#include "engine/ucx/ucx_address.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr char kMagic[] = "SKNV";
constexpr size_t kMagicBytes = sizeof kMagic - 1;
constexpr size_t kSizes = 4;  // of process, host and tcp; whether there is a fabric
constexpr size_t kPrefixBytes = kMagicBytes + sizeof(uint64_t) + kSizes * sizeof(uint32_t);

uint64_t Checksum(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

template <typename Number>
std::string Raw(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

std::string SealAddress(const UcxAddress& address) {
  const auto size = [](const std::string& text) { return Raw(static_cast<uint32_t>(text.size())); };
  const std::string body = absl::StrCat(size(address.process), size(address.host),
                                        size(address.tcp), Raw(uint32_t{address.fabric}),
                                        address.process, address.host, address.tcp, address.worker);
  return absl::StrCat(kMagic, Raw(Checksum(body)), body);
}

std::optional<UcxAddress> OpenAddress(const std::string& sealed) {
  if (sealed.size() <= kPrefixBytes) return std::nullopt;
  uint32_t sizes[kSizes];
  std::memcpy(sizes, &sealed[kPrefixBytes - sizeof sizes], sizeof sizes);
  const std::string rest = sealed.substr(kPrefixBytes);
  const uint64_t tcp = uint64_t{sizes[0]} + sizes[1];
  const uint64_t worker = tcp + sizes[2];
  if (worker > rest.size()) return std::nullopt;
  UcxAddress address{.process = rest.substr(0, sizes[0]),
                     .host = rest.substr(sizes[0], sizes[1]),
                     .worker = rest.substr(worker),
                     .tcp = rest.substr(tcp, sizes[2]),
                     .fabric = sizes[3] != 0};
  if (SealAddress(address) != sealed) return std::nullopt;
  return address;
}

}  // namespace skein::engine
