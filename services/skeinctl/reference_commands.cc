#include "services/skeinctl/reference_commands.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "services/base/file.h"
#include "services/skeinctl/command.h"
#include "services/skeinctl/reference/reference.h"

namespace skein::services {
namespace {

absl::Status WriteManPages(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("DIR: ", folder, ": ", error.message()));
  absl::Status status;
  for (const auto& [name, text] : ManPages(ProgramReference())) {
    status.Update(WriteFile(absl::StrCat(folder, "/", name), text));
  }
  return status;
}

}  // namespace

void CompletionFlags::Register(FlagSet* set) {
  set->About(
      "Print a shell script that completes Skein's commands and flags.\n"
      "\n"
      "  bash  source <(skeinctl completion bash)\n"
      "  zsh   skeinctl completion zsh > DIR/_skeinctl      (DIR: a folder of $fpath)\n"
      "  fish  skeinctl completion fish | source");
  set->Positional(&shell, "SHELL", "bash, zsh or fish.", {"bash", "zsh", "fish"});
}

int RunCompletion(const CompletionFlags& flags) {
  const auto script = CompletionScript(ProgramReference(), flags.shell);
  if (!script.ok()) return PrintErrors("skeinctl completion", script.status(), kUsage);
  std::fputs(script->c_str(), stdout);
  return kDone;
}

void DocsFlags::Register(FlagSet* set) {
  set->About("Write the man pages of all programs into a folder, or print docs/flags.md.");
  set->Positional(&kind, "KIND", "man or flags.", {"man", "flags"});
  set->OptionalPositional(&folder, "DIR", "The folder for man pages; made if missing.");
  set->Check([this]() -> absl::Status {
    if (kind == "man" && folder.empty()) {
      return absl::InvalidArgumentError("DIR is required for man pages");
    }
    return absl::OkStatus();
  });
}

int RunDocs(const DocsFlags& flags) {
  if (flags.kind == "flags") {
    std::fputs(FlagsMarkdown(ProgramReference()).c_str(), stdout);
    return kDone;
  }
  const absl::Status written = WriteManPages(flags.folder);
  return written.ok() ? kDone : PrintErrors("skeinctl docs", written, kFailed);
}

}  // namespace skein::services
