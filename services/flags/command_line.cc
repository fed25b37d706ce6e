#include "services/flags/command_line.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::services {

int PrintErrors(const std::string& program, const absl::Status& status, ExitCode code) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, program, ": error: ", line, "\n");
  }
  std::fputs(text.c_str(), stderr);
  return code;
}

std::optional<int> ParseOrExit(int argc, const char* const* argv, FlagSet* flags) {
  const absl::Status parsed = flags->Parse(argc, argv, EnvironmentMap());
  if (parsed.ok()) return std::nullopt;
  if (absl::IsCancelled(parsed)) {
    std::fputs(std::string(parsed.message()).c_str(), stdout);
    return kDone;
  }
  PrintErrors(flags->name(), parsed, kUsage);
  std::fprintf(stderr, "Run '%s --help' for the flags.\n", flags->name().c_str());
  return kUsage;
}

}  // namespace skein::services
