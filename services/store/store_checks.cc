#include "services/store/store_checks.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

absl::Status CheckKey(const std::string& key, std::set<std::string>* written) {
  if (!key.empty() && written->insert(key).second) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a commit writes each key once, and none is empty: '", key, "'"));
}

}  // namespace

absl::Status CheckCommit(const StoreCommit& commit) {
  std::set<std::string> written;
  for (const auto& put : commit.puts) {
    if (absl::Status good = CheckKey(put.key, &written); !good.ok()) return good;
  }
  for (const std::string& key : commit.deletes) {
    if (absl::Status good = CheckKey(key, &written); !good.ok()) return good;
  }
  return absl::OkStatus();
}

absl::Status CheckTtl(int64_t ttl_us) {
  if (ttl_us > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a lease's time to live has to be above 0 us, not ", ttl_us));
}

}  // namespace skein::services
