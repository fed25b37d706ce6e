// The keys that clients of the API must have one of. Only their SHA-256 digests are kept, and no
// error, log line or answer ever holds a key.
//
// The file: one key a line, or "sha256:" and its digest in 64 hexadecimal digits; after a space,
// "priority=N", which is the default for the key's requests and the most urgent that they may name
// (the API's `priority`: lower is more urgent). A key may be there twice only if both lines give it
// the same. No key begins with "priority=". Blank lines and lines that begin with '#' are ignored.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
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
    bool operator==(const Grant&) const = default;
  };
  // Takes the same time for every key that is not one. Null: it is none.
  const Grant* Find(std::string_view key) const;
  bool Admits(std::string_view key) const { return Find(key) != nullptr; }
  size_t size() const { return keys_.size(); }

 private:
  std::vector<std::pair<Digest, Grant>> keys_;
};

// The key of an Authorization header, "Bearer KEY"; "" when it has none.
std::string_view BearerOf(std::string_view authorization);

// The keys of one file, which may be read anew while requests are checked. Any thread.
class ApiKeyFile {
 public:
  // An empty path: every request is admitted.
  explicit ApiKeyFile(std::string path) : path_(std::move(path)) {}

  // Errors name the file and the line; the keys that were read before stay. Warns in the log of a
  // file that others than its owner can read.
  absl::Status Read();
  bool required() const { return !path_.empty(); }
  // Empty: the key is none of the file's. Without a file every request is granted all.
  std::optional<ApiKeys::Grant> Find(std::string_view key) const;
  bool Admits(std::string_view key) const { return Find(key).has_value(); }

 private:
  const std::string path_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ApiKeys> keys_;  // guarded by mutex_
};

}  // namespace skein::services
