#include "services/base/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "services/base/signals.h"
#include "services/base/version.h"
#include "services/flags/command_line.h"
#include "services/log/log.h"

namespace skein::services {

namespace {

// The target of --log-format; a process has one log.
std::string& LogFormatFlag() {
  static std::string format = "json";
  return format;
}

// A connection is a descriptor; the usual soft limit of 1024 would be the first to be reached. And
// a gRPC server that once found no descriptor for a connection takes none any more (gRPC 1.51).
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

void RegisterLogFlags(std::string* level, FlagSet* flags) {
  flags->Group("General");
  flags->String(level, "log-level", "The lowest level that is logged.")
      .Value("LEVEL")
      .OneOf({"debug", "info", "warning", "error"});
  flags
      ->String(&LogFormatFlag(), "log-format",
               "How log lines look: JSON, which skeinctl logs and log collectors read, or text.")
      .Value("FORMAT")
      .OneOf({"json", "text"});
}

int StartProcess(const std::string& role, const std::string& log_level, int argc, char** argv,
                 FlagSet* flags) {
  BlockStopSignals();
  if (const auto code = ParseOrExit(argc, argv, flags)) return *code;
  InitLog(role,
          log_level == "error"     ? Level::kError
          : log_level == "warning" ? Level::kWarning
          : log_level == "debug"   ? Level::kDebug
                                   : Level::kInfo,
          LogFormatFlag() == "text" ? LogFormat::kText : LogFormat::kJson);
  FlushLogOnFatalSignals();
  RaiseDescriptorLimit();
  LogInfo("start", {{"version", kVersion},
                    {"pid", static_cast<int64_t>(getpid())},
                    {"flags", Raw{flags->EffectiveJson()}}});
  for (const auto& one : flags->MistypedVariables(EnvironmentMap())) {
    LogWarning("environment variable ignored: no flag has this name",
               {{"variable", one.variable}, {"closest", one.closest}});
  }
  return -1;
}

int EndProcess(const absl::Status& status, const FlagSet& flags) {
  if (!status.ok()) {
    FlushLog();  // earlier lines come first
    return PrintErrors(flags.name(), status, absl::IsAborted(status) ? kFailed : kUsage);
  }
  LogInfo("stopped");
  return kDone;
}

absl::Status AboutFlag(const std::string& flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

absl::Status AboutListening(const std::string& port_flag, const absl::Status& status) {
  return AboutFlag(absl::IsInvalidArgument(status) ? "host" : port_flag, status);
}

absl::Status WritePortFile(const std::string& path, int port) {
  if (path.empty()) return absl::OkStatus();
  const std::string draft = path + ".draft";
  std::ofstream(draft) << port << "\n";
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--port-file: cannot write '", path, "'"));
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
