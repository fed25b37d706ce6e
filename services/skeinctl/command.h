// A command of skeinctl. To add one, write a struct of its flags, a function that runs it, and one
// line in commands.cc. Help, completion, man pages and docs/flags.md follow from these.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "services/flags/command_line.h"
#include "services/flags/flags.h"

namespace skein::services {

struct Command {
  std::string name;  // as typed after "skeinctl"
  // Calls `visit` with the command's flags at their defaults.
  std::function<void(const std::function<void(const FlagSet&)>& visit)> describe;
  // argv[0] is the command's name. Returns the exit code (see command_line.h).
  std::function<int(int argc, const char* const* argv)> run;
};

// `Flags` holds the command's flags at their defaults. Its Register(FlagSet*) describes the command
// (FlagSet::About) and registers them. `run` is called when they are parsed and valid.
template <typename Flags>
Command MakeCommand(const std::string& name, int (*run)(const Flags&)) {
  const auto prepared = [name](Flags* flags, FlagSet* set) {
    set->Name("skeinctl " + name);
    // Services and commands use some names with different meanings (--model, --policy) and may
    // share an environment, as in a pod.
    set->EnvironmentPrefix("SKEINCTL_");
    flags->Register(set);
  };
  return {.name = name,
          .describe =
              [prepared](const auto& visit) {
                Flags flags;
                FlagSet set;
                prepared(&flags, &set);
                visit(set);
              },
          .run =
              [prepared, run](int argc, const char* const* argv) {
                Flags flags;
                FlagSet set;
                prepared(&flags, &set);
                if (const auto code = ParseOrExit(argc, argv, &set)) return *code;
                for (const auto& one : set.MistypedVariables(EnvironmentMap())) {
                  std::fprintf(stderr, "%s: warning: %s: no flag has this name; did you mean %s?\n",
                               set.name().c_str(), one.variable.c_str(), one.closest.c_str());
                }
                return run(flags);
              }};
}

// Every command, in help's order.
const std::vector<Command>& Commands();

// Runs skeinctl with these arguments. Returns the exit code.
int RunSkeinctl(int argc, const char* const* argv);

}  // namespace skein::services
