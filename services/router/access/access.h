// Who may use the API: the files of keys and tenants, read anew while requests are checked, and the
// guard against clients that try keys. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/tenants/guess_guard.h"
#include "services/router/access/api_keys.h"
#include "services/router/access/caller.h"
#include "services/router/access/tenants_file.h"

namespace skein::services {

struct AccessOptions {
  std::string key_file;                   // empty: every request is admitted
  std::string key_flag = "api-key-file";  // for errors
  std::string tenants_file;               // empty: tenants have names only. REQUIRES: key_file
};

// Requests without a valid key, by reason.
struct KeyRefusals {
  uint64_t missing = 0;
  uint64_t wrong = 0;
  uint64_t held = 0;  // not even looked at: the address has tried too many
};

class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // Reads both files. Errors name the flag, the file and the line; what was read before stays.
  // Warns in the log of a file of keys that others than its owner can read.
  absl::Status Read();
  // The same, if either file has changed since. Cheap.
  absl::Status ReadIfChanged();
  bool required() const { return !options_.key_file.empty(); }

  struct Found {
    std::shared_ptr<const Caller> caller;  // null: no valid key. Without a file of keys, too
    int64_t held_us = 0;  // how long keys of this address are not looked at; 0: it was
    bool admitted = false;
  };
  // Counts a refusal, and holds off addresses that try keys.
  Found Admit(std::string_view authorization, const std::string& address);
  // Whose key it is; counts nothing. Null: nobody's.
  std::shared_ptr<const Caller> CallerOf(std::string_view authorization) const;
  // For work of a tenant that comes without a key: what the files say of it now. NOT_FOUND: there
  // is a file of tenants, and the tenant is not in it (any more, or yet). "" is nobody, for work of
  // the time before there were keys, and is always found.
  absl::StatusOr<std::shared_ptr<const Caller>> CallerOfTenant(const std::string& tenant) const;

  Tenants tenants() const { return Now()->tenants; }
  // The ids of the keys, by tenant.
  std::map<std::string, std::vector<std::string>> KeyIds() const;
  KeyRefusals refusals() const;

 private:
  struct Files {
    ApiKeys keys;
    Tenants tenants;
    std::vector<std::shared_ptr<const Caller>> callers;  // of the keys' grants
  };
  absl::Status ReadFiles(const std::string& key_text, const std::string& tenants_text);
  std::shared_ptr<const Files> Now() const;
  static std::shared_ptr<const Caller> CallerIn(const Files& files, std::string_view key);

  const AccessOptions options_;
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<const Files> files_ = std::make_shared<Files>();
  std::string key_text_digest_, tenants_text_digest_;  // of what was read last, good or bad
  scheduler::tenants::GuessGuard guard_;
  KeyRefusals refusals_;
};

}  // namespace skein::services
