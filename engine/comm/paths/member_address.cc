#include "engine/comm/paths/member_address.h"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace skein::engine {
namespace {

constexpr char kMagic[] = "SKNM";
constexpr size_t kMagicBytes = sizeof kMagic - 1;
constexpr size_t kPrefixBytes = kMagicBytes + sizeof(uint64_t);

uint64_t Checksum(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

template <typename Number>
std::string Raw(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

void Append(std::string* body, const std::string& field) {
  absl::StrAppend(body, Raw(static_cast<uint32_t>(field.size())), field);
}

// False: there is no whole field.
bool Take(std::string_view* body, std::string* field) {
  uint32_t bytes = 0;
  if (body->size() < sizeof bytes) return false;
  std::memcpy(&bytes, body->data(), sizeof bytes);
  body->remove_prefix(sizeof bytes);
  if (body->size() < bytes) return false;
  *field = body->substr(0, bytes);
  body->remove_prefix(bytes);
  return true;
}

}  // namespace

std::string SealMember(const MemberAddress& address) {
  const CommMember& member = address.member;
  std::string body;
  Append(&body, member.gpu);
  Append(&body, member.realm);
  Append(&body, absl::StrJoin(member.reaches, ","));
  Append(&body, absl::StrCat(member.nccl_version));
  Append(&body, member.wants.has_value() ? std::string(NameOf(*member.wants)) : "");
  Append(&body, address.host);
  return absl::StrCat(kMagic, Raw(Checksum(body)), body);
}

std::optional<MemberAddress> OpenMember(const std::string& sealed) {
  if (sealed.size() <= kPrefixBytes) return std::nullopt;
  std::string_view body = std::string_view(sealed).substr(kPrefixBytes);
  MemberAddress address;
  CommMember& member = address.member;
  std::string reaches, version, wants;
  for (std::string* field :
       {&member.gpu, &member.realm, &reaches, &version, &wants, &address.host}) {
    if (!Take(&body, field)) return std::nullopt;
  }
  if (!reaches.empty()) member.reaches = absl::StrSplit(reaches, ',');
  std::from_chars(version.data(), version.data() + version.size(), member.nccl_version);
  member.wants = CommPathOf(wants);
  if (SealMember(address) != sealed) return std::nullopt;
  return address;
}

}  // namespace skein::engine
