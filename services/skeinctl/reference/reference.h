// Completion scripts, man pages and docs/flags.md, all made from the descriptions of the programs'
// flags. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/flags/flag_parser.h"

namespace skein::services {

struct Reference {
  std::vector<CommandDescription> services;  // by binary name
  std::vector<CommandDescription> commands;  // skeinctl's: "skeinctl status"
};

// The reference of this build's programs.
Reference ProgramReference();

// A script to source (bash) or to put where the shell looks for it (zsh, fish). It completes
// skeinctl and the services. INVALID_ARGUMENT: unknown shell.
absl::StatusOr<std::string> CompletionScript(const Reference& reference, const std::string& shell);

// Files by name: skeinctl.1, skeinctl-status.1, skein-router.8.
std::map<std::string, std::string> ManPages(const Reference& reference);

// docs/flags.md.
std::string FlagsMarkdown(const Reference& reference);

}  // namespace skein::services
