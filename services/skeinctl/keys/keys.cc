#include "services/skeinctl/keys/keys.h"

#include <openssl/rand.h>

#include <array>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "services/router/access/api_keys.h"

namespace skein::services {

void KeysFlags::Register(FlagSet* set) {
  set->About(
      "Make an API key: the key goes to standard error, its line for --api-key-file to standard "
      "output.\n"
      "\n"
      "The line has the key's digest only, and is no secret:\n"
      "\n"
      "  skeinctl keys new --tenant search >> keys.txt");
  set->Positional(&action, "ACTION", "new.", {"new"});
  set->String(&tenant, "tenant", "The tenant whose key it is.").Value("NAME");
  set->String(&id, "id", "What logs and accounts call the key.")
      .Value("NAME")
      .Default("the first 12 digits of its digest");
  set->Check([this]() -> absl::Status {
    for (const auto& [flag, name] : {std::pair("--tenant", &tenant), std::pair("--id", &id)}) {
      if (name->empty() || IsAccountName(*name)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          flag, ": '", *name, "' is not 1 to 64 letters, digits, '.', '_' and '-' that begin with ",
          "a letter or a digit"));
    }
    return absl::OkStatus();
  });
}

std::string NewKey() {
  std::array<unsigned char, 32> bits{};
  SKEIN_CHECK(RAND_bytes(bits.data(), static_cast<int>(bits.size())) == 1);
  return absl::StrCat("sk-", absl::WebSafeBase64Escape(absl::string_view(
                                 reinterpret_cast<const char*>(bits.data()), bits.size())));
}

std::string NewKeyLine(const std::string& key, const KeysFlags& flags) {
  std::string line = KeyLine(key);
  if (!flags.tenant.empty()) absl::StrAppend(&line, " tenant=", flags.tenant);
  if (!flags.id.empty()) absl::StrAppend(&line, " id=", flags.id);
  return line;
}

int RunKeys(const KeysFlags& flags) {
  const std::string key = NewKey();
  std::fprintf(stderr, "%s\n", key.c_str());
  std::printf("%s\n", NewKeyLine(key, flags).c_str());
  return 0;
}

}  // namespace skein::services
