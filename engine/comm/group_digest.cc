#include "engine/comm/group_digest.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

// FNV-1a, then the finaliser of MurmurHash3, so that near inputs end far apart.
class Hash {
 public:
  explicit Hash(uint64_t seed) : value_(0xcbf29ce484222325u ^ seed) {}

  void Add(const void* data, size_t bytes) {
    const auto* const text = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) value_ = (value_ ^ text[i]) * 0x100000001b3u;
  }
  void Add(uint64_t number) { Add(&number, sizeof number); }

  uint64_t Value() const {
    uint64_t mixed = value_;
    mixed = (mixed ^ (mixed >> 33)) * 0xff51afd7ed558ccdu;
    mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53u;
    return mixed ^ (mixed >> 33);
  }

 private:
  uint64_t value_;
};

uint64_t HashOf(uint64_t seed, GroupId id, std::span<const std::string> addresses) {
  Hash hash(seed);
  hash.Add(id.high);
  hash.Add(id.low);
  for (const std::string& address : addresses) {
    hash.Add(address.size());
    hash.Add(address.data(), address.size());
  }
  return hash.Value();
}

absl::Status Refuse(int rank, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, ": ", why));
}

}  // namespace

GroupDigest DigestOf(GroupId id, std::span<const std::string> addresses) {
  return {HashOf(1, id, addresses), HashOf(0x9e3779b97f4a7c15u, id, addresses)};
}

absl::Status CheckMembers(std::span<const std::string> addresses, int rank, const std::string& own,
                          const std::function<bool(const std::string&)>& is_ours) {
  const int size = static_cast<int>(addresses.size());
  if (rank < 0 || rank >= size) return Refuse(rank, "is not in the group");
  std::set<std::string> seen;
  for (int r = 0; r < size; ++r) {
    if (!is_ours(addresses[r])) return Refuse(r, "its address is not one of this kind of fabric");
    if (!seen.insert(addresses[r]).second) return Refuse(r, "another rank has the same address");
  }
  if (addresses[rank] != own) return Refuse(rank, "its address is not that of this fabric");
  return absl::OkStatus();
}

}  // namespace skein::engine
