#include "services/base/process.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "services/base/log.h"
#include "services/base/signals.h"
#include "services/base/version.h"

namespace skein::services {

int StartProcess(const std::string& role, int argc, char** argv, FlagSet* flags) {
  BlockStopSignals();
  const absl::Status status = flags->Parse(argc, argv, EnvironmentMap());
  if (absl::IsCancelled(status)) {
    std::printf("%s", std::string(status.message()).c_str());
    return 0;
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", role.c_str(), std::string(status.message()).c_str());
    return 2;
  }
  InitLog(role, Level::kInfo);
  LogInfo("start", {{"version", kVersion},
                    {"pid", static_cast<int64_t>(getpid())},
                    {"flags", Raw{flags->EffectiveJson()}}});
  return -1;
}

int EndProcess(const absl::Status& status) {
  if (!status.ok()) {
    LogError("ended", {{"why", std::string(status.message())}});
    return 1;
  }
  LogInfo("ended");
  return 0;
}

absl::Status WritePortFile(const std::string& path, int port) {
  if (path.empty()) return absl::OkStatus();
  const std::string draft = path + ".draft";
  std::ofstream(draft) << port << "\n";
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("port_file: cannot write '", path, "'"));
  }
  return absl::OkStatus();
}

uint64_t RandomIncarnation() {
  std::random_device device;
  uint64_t bits = 0;
  while (bits == 0) bits = (uint64_t{device()} << 32) | device();
  return bits;
}

}  // namespace skein::services
