#include "services/router/access/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/file.h"
#include "services/log/log.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

absl::Status About(const std::string& flag, const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("--", flag, ": '", path, "': ", status.message()));
}

absl::StatusOr<std::string> Text(const std::string& flag, const std::string& path) {
  if (path.empty()) return std::string();
  auto text = ReadFile(path);
  if (!text.ok()) return About(flag, path, absl::NotFoundError("cannot be read"));
  return text;
}

// A digest as a plain value, so that no text of a file of keys stays in memory.
std::string DigestText(std::string_view text) {
  const ApiKeys::Digest digest = DigestOf(text);
  return std::string(digest.begin(), digest.end());
}

// IPv6 hosts have whole networks of 64 bits, so the addresses of one count as one.
std::string NetworkOf(const std::string& address) {
  in6_addr bytes{};
  if (::inet_pton(AF_INET6, address.c_str(), &bytes) != 1 || IN6_IS_ADDR_V4MAPPED(&bytes)) {
    return address;
  }
  return std::string(reinterpret_cast<const char*>(&bytes), 8);
}

Caller MakeCaller(const std::string& name, const Tenant* tenant) {
  Caller caller;
  caller.tenant = name;
  if (tenant == nullptr) return caller;
  caller.priority = tenant->priority;
  caller.weight = tenant->weight;
  caller.ttft_goal_us = tenant->ttft_goal_us;
  caller.tpot_goal_us = tenant->tpot_goal_us;
  caller.models = tenant->models;
  return caller;
}

const Tenant* FindTenant(const Tenants& tenants, const std::string& name) {
  const auto it = tenants.find(name);
  return it == tenants.end() ? nullptr : &it->second;
}

}  // namespace

absl::Status Access::Read() {
  if (!required()) return absl::OkStatus();
  const auto keys = Text(options_.key_flag, options_.key_file);
  if (!keys.ok()) return keys.status();
  const auto tenants = Text("tenants-file", options_.tenants_file);
  if (!tenants.ok()) return tenants.status();
  return ReadFiles(*keys, *tenants);
}

absl::Status Access::ReadIfChanged() {
  if (!required()) return absl::OkStatus();
  const auto keys = Text(options_.key_flag, options_.key_file);
  if (!keys.ok()) return keys.status();
  const auto tenants = Text("tenants-file", options_.tenants_file);
  if (!tenants.ok()) return tenants.status();
  {
    std::lock_guard lock(mutex_);
    if (DigestText(*keys) == key_text_digest_ && DigestText(*tenants) == tenants_text_digest_) {
      return absl::OkStatus();
    }
  }
  return ReadFiles(*keys, *tenants);
}

absl::Status Access::ReadFiles(const std::string& key_text, const std::string& tenants_text) {
  {
    std::lock_guard lock(mutex_);
    key_text_digest_ = DigestText(key_text);
    tenants_text_digest_ = DigestText(tenants_text);
  }
  auto keys = ApiKeys::Parse(key_text);
  if (!keys.ok()) return About(options_.key_flag, options_.key_file, keys.status());
  auto files = std::make_shared<Files>();
  files->keys = *std::move(keys);
  const bool with_tenants = !options_.tenants_file.empty();
  if (with_tenants) {
    auto tenants = ParseTenants(tenants_text);
    if (!tenants.ok()) return About("tenants-file", options_.tenants_file, tenants.status());
    files->tenants = *std::move(tenants);
  }
  files->callers.reserve(files->keys.size());
  for (const ApiKeys::Grant& grant : files->keys.grants()) {
    const std::string name = grant.tenant.empty() && with_tenants ? kDefaultTenant : grant.tenant;
    const Tenant* const tenant = FindTenant(files->tenants, name);
    if (with_tenants && tenant == nullptr) {
      const std::string what =
          grant.tenant.empty()
              ? absl::StrCat("the key ", grant.id, " names no tenant, and --tenants-file has no '",
                             kDefaultTenant, "'")
              : absl::StrCat("the key ", grant.id, " names the tenant '", name,
                             "', which --tenants-file does not have");
      return About(options_.key_flag, options_.key_file, absl::InvalidArgumentError(what));
    }
    auto caller = std::make_shared<Caller>(MakeCaller(name, tenant));
    caller->key_id = grant.id;
    if (grant.priority.has_value()) caller->priority = grant.priority;
    if (grant.ttft_goal_us > 0) caller->ttft_goal_us = grant.ttft_goal_us;
    if (grant.tpot_goal_us > 0) caller->tpot_goal_us = grant.tpot_goal_us;
    files->callers.push_back(std::move(caller));
  }
  struct stat file {};
  if (::stat(options_.key_file.c_str(), &file) == 0 && (file.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    LogWarning("others than the owner can read the API keys", {{"file", options_.key_file}});
  }
  LogInfo("API keys read", {{"file", options_.key_file},
                            {"keys", static_cast<int64_t>(files->keys.size())},
                            {"tenants", static_cast<int64_t>(files->tenants.size())}});
  std::lock_guard lock(mutex_);
  files_ = std::move(files);
  return absl::OkStatus();
}

std::shared_ptr<const Access::Files> Access::Now() const {
  std::lock_guard lock(mutex_);
  return files_;
}

std::shared_ptr<const Caller> Access::CallerIn(const Files& files, std::string_view key) {
  const auto place = files.keys.PlaceOf(key);
  return place.has_value() ? files.callers[*place] : nullptr;
}

Access::Found Access::Admit(std::string_view authorization, const std::string& address) {
  if (!required()) return {.admitted = true};
  const std::string_view key = BearerOf(authorization);
  if (key.empty()) {
    std::lock_guard lock(mutex_);
    ++refusals_.missing;
    return {};
  }
  const std::string network = NetworkOf(address);
  const std::string digest = DigestText(key);
  std::shared_ptr<const Files> files;
  {
    std::lock_guard lock(mutex_);
    const int64_t held_us = guard_.HeldFor(network, digest, MonotonicUs());
    if (held_us > 0) {
      ++refusals_.held;
      return {.held_us = held_us};
    }
    files = files_;
  }
  std::shared_ptr<const Caller> caller = CallerIn(*files, key);
  std::lock_guard lock(mutex_);
  if (caller != nullptr) {
    guard_.Right(network, digest);
  } else {
    guard_.Wrong(network, MonotonicUs());
    ++refusals_.wrong;
  }
  const bool admitted = caller != nullptr;
  return {.caller = std::move(caller), .admitted = admitted};
}

std::shared_ptr<const Caller> Access::CallerOf(std::string_view authorization) const {
  return CallerIn(*Now(), BearerOf(authorization));
}

absl::StatusOr<std::shared_ptr<const Caller>> Access::CallerOfTenant(
    const std::string& tenant) const {
  const auto files = Now();
  const Tenant* const found = FindTenant(files->tenants, tenant);
  if (found == nullptr && !tenant.empty() && !options_.tenants_file.empty()) {
    return absl::NotFoundError(absl::StrCat("the tenant '", tenant, "' is not in --tenants-file '",
                                            options_.tenants_file, "'"));
  }
  return std::make_shared<const Caller>(MakeCaller(tenant, found));
}

std::map<std::string, std::vector<std::string>> Access::KeyIds() const {
  std::map<std::string, std::vector<std::string>> ids;
  for (const auto& caller : Now()->callers) ids[caller->tenant].push_back(caller->key_id);
  return ids;
}

KeyRefusals Access::refusals() const {
  std::lock_guard lock(mutex_);
  return refusals_;
}

}  // namespace skein::services
