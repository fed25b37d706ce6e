// The keys that clients of the API must have one of. Only their SHA-256 digests are kept, and no
// error, log line or answer ever holds a key.
//
// The file: one key a line, or "sha256:" and its digest in 64 hexadecimal digits. Blank lines and
// lines that begin with '#' are ignored.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::services {

class ApiKeys {
 public:
  using Digest = std::array<uint8_t, 32>;

  // INVALID_ARGUMENT names every bad line by its number, or says that there is no key.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text);

  // Takes the same time for every key that is not one.
  bool Admits(std::string_view key) const;
  size_t size() const { return digests_.size(); }

 private:
  std::vector<Digest> digests_;
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
  bool Admits(std::string_view key) const;

 private:
  const std::string path_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ApiKeys> keys_;  // guarded by mutex_
};

}  // namespace skein::services
