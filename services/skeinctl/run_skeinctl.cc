#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/base/version.h"
#include "services/flags/closest_name.h"
#include "services/skeinctl/command.h"

namespace skein::services {
namespace {

std::string Help() {
  std::string text =
      "skeinctl: the operator's command line for a Skein cluster.\n\n"
      "Usage: skeinctl COMMAND [arguments and flags]\n\nCommands:\n";
  for (const Command& command : Commands()) {
    command.describe([&](const FlagSet& flags) {
      absl::StrAppend(&text, "  ", command.name, "\n", Wrapped(flags.Describe().Summary(), 6, 90));
    });
  }
  return text +
         "\n'skeinctl help COMMAND' and 'skeinctl COMMAND --help' print the arguments and flags of "
         "a\ncommand, 'skeinctl --version' the version.\n"
         "Exit codes: 0 done or healthy, 1 failed, 2 wrong usage, 3 degraded, 4 cannot serve,\n"
         "5 not found, 6 not in time.\n";
}

const Command* Find(std::string_view name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

int Refuse(std::string_view name) {
  if (name.starts_with('-')) {
    return PrintErrors(
        "skeinctl",
        absl::InvalidArgumentError("flags follow a command, as in 'skeinctl status " +
                                   std::string(name) + "'; run 'skeinctl --help' for the commands"),
        kUsage);
  }
  std::vector<std::string> names = {"help"};
  for (const Command& command : Commands()) names.push_back(command.name);
  PrintErrors("skeinctl",
              absl::InvalidArgumentError("unknown command '" + std::string(name) + "'" +
                                         DidYouMean(name, names)),
              kUsage);
  std::fputs("Run 'skeinctl --help' for the commands.\n", stderr);
  return kUsage;
}

int PrintHelp(int argc, const char* const* argv) {
  if (argc < 1) {
    std::fputs(Help().c_str(), stdout);
    return kDone;
  }
  const Command* command = Find(argv[0]);
  if (command == nullptr) return Refuse(argv[0]);
  command->describe([](const FlagSet& flags) { std::fputs(flags.Help().c_str(), stdout); });
  return kDone;
}

}  // namespace

int RunSkeinctl(int argc, const char* const* argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name == "--version") {
    std::printf("%s\n", VersionText("skeinctl").c_str());
    return kDone;
  }
  if (name == "--help" || name == "-h") return PrintHelp(0, nullptr);
  if (name == "help") return PrintHelp(argc - 2, argv + 2);
  if (const Command* command = Find(name)) return command->run(argc - 1, argv + 1);
  return Refuse(name);
}

}  // namespace skein::services
