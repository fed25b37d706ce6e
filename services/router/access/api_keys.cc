#include "services/router/access/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace skein::services {
namespace {

constexpr absl::string_view kDigestMark = "sha256:";
constexpr absl::string_view kPriorityMark = "priority=";
constexpr size_t kKeyBytesMax = 512;
constexpr size_t kIdDigits = 12;
constexpr int64_t kGoalMsMax = 86'400'000;  // a day

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string HexOf(const ApiKeys::Digest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string ReadPriority(absl::string_view text, ApiKeys::Grant* grant) {
  int32_t priority = 0;
  if (!absl::SimpleAtoi(text, &priority) || priority == INT32_MIN) {
    return absl::StrCat("'priority=' takes an integer between ", -INT32_MAX, " and ", INT32_MAX);
  }
  grant->priority = priority;
  return {};
}

std::string ReadName(absl::string_view what, absl::string_view text, std::string* name) {
  *name = std::string(text);
  if (IsAccountName(*name)) return {};
  return absl::StrCat("'", what, "=' takes 1 to 64 letters, digits, '.', '_' and '-', and begins ",
                      "with a letter or a digit");
}

std::string ReadGoal(absl::string_view what, absl::string_view text, int64_t* goal_us) {
  int64_t ms = 0;
  if (!absl::SimpleAtoi(text, &ms) || ms < 1 || ms > kGoalMsMax) {
    return absl::StrCat("'", what, "=' takes milliseconds, an integer between 1 and ", kGoalMsMax);
  }
  *goal_us = ms * 1000;
  return {};
}

// "" when `text` is what may follow a key; otherwise what is wrong with it.
std::string ReadGrant(absl::string_view text, ApiKeys::Grant* grant) {
  std::set<std::string> seen;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    const absl::string_view name = parts.first, value = parts.second;
    std::string problem;
    if (name == "priority") {
      problem = ReadPriority(value, grant);
    } else if (name == "tenant") {
      problem = ReadName(name, value, &grant->tenant);
    } else if (name == "id") {
      problem = ReadName(name, value, &grant->id);
    } else if (name == "ttft-ms") {
      problem = ReadGoal(name, value, &grant->ttft_goal_us);
    } else if (name == "tpot-ms") {
      problem = ReadGoal(name, value, &grant->tpot_goal_us);
    } else {
      problem =
          "only 'priority=N', 'tenant=NAME', 'id=NAME', 'ttft-ms=N' and 'tpot-ms=N' may follow a "
          "key, which is printable ASCII without spaces";
    }
    if (problem.empty() && !seen.insert(std::string(name)).second) {
      problem = absl::StrCat("'", name, "=' is there twice");
    }
    if (!problem.empty()) return problem;
  }
  return {};
}

// "" when `line` is a key or a digest; otherwise what is wrong with it.
std::string ReadLine(absl::string_view line, ApiKeys::Digest* digest, ApiKeys::Grant* grant) {
  if (absl::StartsWith(line, kPriorityMark)) {
    return "'priority=' is behind a key and a space, and no key begins with it";
  }
  if (const size_t space = line.find(' '); space != absl::string_view::npos) {
    std::string problem = ReadGrant(line.substr(space), grant);
    if (!problem.empty()) return problem;
    line = line.substr(0, space);
  }
  if (absl::StartsWith(line, kDigestMark)) {
    const absl::string_view hex = line.substr(kDigestMark.size());
    if (hex.size() != 64 || !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) {
      return "'sha256:' takes 64 hexadecimal digits";
    }
    const std::string bytes = absl::HexStringToBytes(hex);
    std::copy(bytes.begin(), bytes.end(), digest->begin());
  } else {
    if (line.size() > kKeyBytesMax) return absl::StrCat("longer than ", kKeyBytesMax, " bytes");
    if (!std::all_of(line.begin(), line.end(), absl::ascii_isgraph)) {
      return "a key is printable ASCII without spaces";
    }
    *digest = DigestOf({line.data(), line.size()});
  }
  if (grant->id.empty()) grant->id = HexOf(*digest).substr(0, kIdDigits);
  return {};
}

// What two lines of one key differ in.
const char* DifferenceOf(const ApiKeys::Grant& a, const ApiKeys::Grant& b) {
  if (a.priority != b.priority) return "priority";
  if (a.tenant != b.tenant) return "tenant";
  if (a.id != b.id) return "id";
  return a == b ? nullptr : "goal";
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys keys;
  std::vector<std::string> problems;
  struct Listed {
    Grant grant;
    int line = 0;
  };
  std::map<Digest, Listed> listed;
  std::map<std::string, int> ids;  // the line of each
  int number = 0;
  for (absl::string_view line : absl::StrSplit(View(text), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    Digest digest;
    Grant grant;
    std::string problem = ReadLine(line, &digest, &grant);
    if (problem.empty()) {
      const auto [first, is_new] = listed.try_emplace(digest, Listed{grant, number});
      if (is_new) {
        keys.digests_.push_back(digest);
        keys.grants_.push_back(grant);
        const auto [other, id_is_new] = ids.try_emplace(grant.id, number);
        if (!id_is_new) problem = absl::StrCat("the id of line ", other->second);
      } else if (const char* what = DifferenceOf(first->second.grant, grant)) {
        problem = absl::StrCat("the key of line ", first->second.line, " with another ", what);
      }
    }
    if (!problem.empty()) problems.push_back(absl::StrCat("line ", number, ": ", problem));
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
  if (keys.grants_.empty()) return absl::InvalidArgumentError("the file has no keys");
  return keys;
}

std::optional<size_t> ApiKeys::PlaceOf(std::string_view key) const {
  const Digest digest = DigestOf(key);
  std::optional<size_t> found;
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (CRYPTO_memcmp(digests_[i].data(), digest.data(), digest.size()) == 0) found = i;
  }
  return key.empty() ? std::nullopt : found;
}

const ApiKeys::Grant* ApiKeys::Find(std::string_view key) const {
  const auto place = PlaceOf(key);
  return place.has_value() ? &grants_[*place] : nullptr;
}

std::string_view BearerOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(View(authorization), View(kScheme))) return {};
  const absl::string_view key =
      absl::StripAsciiWhitespace(View(authorization.substr(kScheme.size())));
  return {key.data(), key.size()};
}

ApiKeys::Digest DigestOf(std::string_view key) {
  ApiKeys::Digest digest{};
  EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

std::string KeyLine(std::string_view key) {
  return absl::StrCat(kDigestMark, HexOf(DigestOf(key)));
}

bool IsAccountName(std::string_view name) {
  const auto is_part = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 &&
         absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), is_part);
}

}  // namespace skein::services
