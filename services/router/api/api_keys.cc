#include "services/router/api/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/base/file.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

constexpr absl::string_view kDigestMark = "sha256:";
constexpr absl::string_view kPriorityMark = "priority=";
constexpr size_t kKeyBytesMax = 512;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

ApiKeys::Digest DigestOf(std::string_view key) {
  ApiKeys::Digest digest{};
  EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

// "" when `text` is what may follow a key; otherwise what is wrong with it.
std::string ReadGrant(absl::string_view text, ApiKeys::Grant* grant) {
  int32_t priority = 0;
  if (!absl::ConsumePrefix(&text, kPriorityMark)) {
    return "only 'priority=N' may follow a key, which is printable ASCII without spaces";
  }
  if (!absl::SimpleAtoi(text, &priority) || priority == INT32_MIN) {
    return absl::StrCat("'priority=' takes an integer between ", -INT32_MAX, " and ", INT32_MAX);
  }
  grant->priority = priority;
  return {};
}

// "" when `line` is a key or a digest; otherwise what is wrong with it.
std::string ReadLine(absl::string_view line, ApiKeys::Digest* digest, ApiKeys::Grant* grant) {
  if (absl::StartsWith(line, kPriorityMark)) {
    return "'priority=' is behind a key and a space, and no key begins with it";
  }
  if (const size_t space = line.find(' '); space != absl::string_view::npos) {
    std::string problem = ReadGrant(absl::StripLeadingAsciiWhitespace(line.substr(space)), grant);
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
    return {};
  }
  if (line.size() > kKeyBytesMax) return absl::StrCat("longer than ", kKeyBytesMax, " bytes");
  if (!std::all_of(line.begin(), line.end(), absl::ascii_isgraph)) {
    return "a key is printable ASCII without spaces";
  }
  *digest = DigestOf({line.data(), line.size()});
  return {};
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
      if (is_new) keys.keys_.emplace_back(digest, grant);
      if (first->second.grant != grant) {
        problem = absl::StrCat("the key of line ", first->second.line, " with another priority");
      }
    }
    if (!problem.empty()) problems.push_back(absl::StrCat("line ", number, ": ", problem));
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
  if (keys.keys_.empty()) return absl::InvalidArgumentError("the file has no keys");
  return keys;
}

const ApiKeys::Grant* ApiKeys::Find(std::string_view key) const {
  const Digest digest = DigestOf(key);
  const Grant* found = nullptr;
  for (const auto& [known, grant] : keys_) {
    const bool same = CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
    found = same ? &grant : found;
  }
  return key.empty() ? nullptr : found;
}

std::string_view BearerOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(View(authorization), View(kScheme))) return {};
  const absl::string_view key =
      absl::StripAsciiWhitespace(View(authorization.substr(kScheme.size())));
  return {key.data(), key.size()};
}

absl::Status ApiKeyFile::Read() {
  if (path_.empty()) return absl::OkStatus();
  const auto failed = [this](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("--api-key-file: '", path_, "': ", status.message()));
  };
  const auto text = ReadFile(path_);
  if (!text.ok()) return failed(absl::NotFoundError("cannot be read"));
  auto keys = ApiKeys::Parse(*text);
  if (!keys.ok()) return failed(keys.status());
  struct stat file {};
  if (::stat(path_.c_str(), &file) == 0 && (file.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    LogWarning("the API key file can be read by others: chmod 600 it", {{"file", path_}});
  }
  LogInfo("API keys read", {{"file", path_}, {"keys", static_cast<int64_t>(keys->size())}});
  std::lock_guard<std::mutex> lock(mutex_);
  keys_ = std::make_shared<const ApiKeys>(*std::move(keys));
  return absl::OkStatus();
}

std::optional<ApiKeys::Grant> ApiKeyFile::Find(std::string_view key) const {
  if (!required()) return ApiKeys::Grant{};
  std::shared_ptr<const ApiKeys> keys;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    keys = keys_;
  }
  const ApiKeys::Grant* grant = keys == nullptr ? nullptr : keys->Find(key);
  return grant == nullptr ? std::nullopt : std::optional(*grant);
}

}  // namespace skein::services
