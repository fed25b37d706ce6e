// Completion scripts, man pages and docs/flags.md: all made of the descriptions of the programs'
// flags, so that none of them is written twice. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/flags/flag_parser.h"

namespace skein::services {

struct Reference {
  std::vector<CommandDescription> services;  // by the names of their binaries
  std::vector<CommandDescription> commands;  // of skeinctl: "skeinctl status"
};

// The reference of this build's programs.
Reference ProgramReference();

// A script to be sourced (bash), or put where the shell looks for one (zsh, fish). It completes
// skeinctl and the service binaries. INVALID_ARGUMENT: another shell.
absl::StatusOr<std::string> CompletionScript(const Reference& reference, const std::string& shell);

// Files by name: skeinctl.1, skeinctl-status.1, skein-router.8.
std::map<std::string, std::string> ManPages(const Reference& reference);

// docs/flags.md.
std::string FlagsMarkdown(const Reference& reference);

}  // namespace skein::services
