// The keys that clients of the API must have one of. Only their SHA-256 digests are kept, and no
// error, log line or answer ever holds a key.
//
// A plain digest, and none that is slow to compute: `skeinctl keys new` makes keys of 256 random
// bits, of which nobody can try enough to find one, however fast a try is. A slow digest would
// protect keys that people make up, and cost its time at every request.
//
// The file: one key a line, or "sha256:" and its digest in 64 hexadecimal digits; after a space, in
// any order and each at most once,
//   priority=N   the default for the key's requests and the most urgent that they may name (the
//                API's `priority`: lower is more urgent)
//   tenant=NAME  whose key it is
//   id=NAME      what logs and accounts call it; otherwise the first 12 digits of its digest
//   ttft-ms=N, tpot-ms=N   what its requests want of their latency (docs/tenants.md)
// A key may be there twice only if both lines give it the same. No key begins with "priority=".
// Blank lines and lines that begin with '#' are ignored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::services {

class ApiKeys {
 public:
  using Digest = std::array<uint8_t, 32>;

  // INVALID_ARGUMENT names every bad line by its number, or says that there is no key.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text);

  // What a key allows.
  struct Grant {
    std::optional<int32_t> priority;  // empty: any; the default is 0
    std::string tenant;               // empty: nobody's
    std::string id;                   // never empty
    int64_t ttft_goal_us = 0;         // 0: none
    int64_t tpot_goal_us = 0;
    bool operator==(const Grant&) const = default;
  };
  // Takes the same time for every key that is not one. Empty: it is none. Otherwise its place in
  // grants().
  std::optional<size_t> PlaceOf(std::string_view key) const;
  // Null: it is none.
  const Grant* Find(std::string_view key) const;
  bool Admits(std::string_view key) const { return PlaceOf(key).has_value(); }
  const std::vector<Grant>& grants() const { return grants_; }
  size_t size() const { return grants_.size(); }

 private:
  std::vector<Digest> digests_;
  std::vector<Grant> grants_;  // of digests_
};

// The key of an Authorization header, "Bearer KEY"; "" when it has none.
std::string_view BearerOf(std::string_view authorization);

// SHA-256.
ApiKeys::Digest DigestOf(std::string_view key);
// The line of a key file for `key`, without what may follow it: "sha256:" and 64 digits.
std::string KeyLine(std::string_view key);

// Whether `name` may be a tenant's or a key's: 1 to 64 letters, digits, '.', '_' and '-', the first
// of which is a letter or a digit.
bool IsAccountName(std::string_view name);

}  // namespace skein::services
