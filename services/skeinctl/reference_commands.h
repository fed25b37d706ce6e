// skeinctl completion and skeinctl docs: see reference.h.
#pragma once

#include <string>

#include "services/flags/flags.h"

namespace skein::services {

struct CompletionFlags {
  std::string shell;

  void Register(FlagSet* set);
};

// Prints the script. Exit code: 0.
int RunCompletion(const CompletionFlags& flags);

struct DocsFlags {
  std::string kind;
  std::string folder;

  void Register(FlagSet* set);
};

// Writes man pages into the folder, or prints docs/flags.md. Exit code: 0; 1 if the folder cannot
// be written.
int RunDocs(const DocsFlags& flags);

}  // namespace skein::services
